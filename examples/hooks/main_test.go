package main

import (
	"bytes"
	"strings"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	if strings.Count(out, "rms") != 7 || !strings.Contains(out, "the pass ends with: dispatch: hook at model.layers.1: the hidden states") ||
		!strings.HasSuffix(out, "without the hook the model runs on\n") {
		t.Errorf("got\n%s", out)
	}
}
