package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const page, fixtures = "../../docs/models.md", "../../testdata/golden"

func TestModelsPageIsGenerated(t *testing.T) {
	want, err := rewrite(page, fixtures)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/models.md is not what its command writes: run go generate ./meta")
	}
}

// TestEveryModelHasAFixture: a model type that no committed fixture shows is not claimed to be served.
func TestEveryModelHasAFixture(t *testing.T) {
	text, err := rewrite(page, fixtures)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 4 && cells[2] == "–" && !strings.Contains(line, "`kimi_k2`") {
			t.Errorf("no fixture: %s", line)
		}
	}
}
