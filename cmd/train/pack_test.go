package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackedTextsDoNotSeeEachOther: packed texts attended to each other. The first step's loss and norm
// are those of a batch with a row for each text.
func TestPackedTextsDoNotSeeEachOther(t *testing.T) {
	dir, texts := tinyModel(t), &strings.Builder{}
	for i := range 4 {
		fmt.Fprintf(texts, "{\"text\": \"%d %s\"}\n", i, strings.Repeat("on ", i))
	}
	file := filepath.Join(t.TempDir(), "texts.jsonl")
	if err := os.WriteFile(file, []byte(texts.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	apart := loggedSteps(t, dir, file, "--batch", "4", "--max-steps", "1", "--no-shuffle", "--lr", "0.1")
	packed := loggedSteps(t, dir, file, "--batch", "1", "--max-steps", "1", "--no-shuffle", "--lr", "0.1", "--pack", "--sequence", "64")
	for _, name := range []string{"loss", "grad_norm"} {
		a, b := apart[0][name].(float64), packed[0][name].(float64)
		if !(math.Abs(a-b) <= 1e-5*math.Abs(a)) {
			t.Errorf("%s is %v with packed texts, want %v", name, b, a)
		}
	}
}
