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
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[0], "Heft serves language models") || strings.Contains(lines[0], ".") ||
		!strings.HasPrefix(lines[1], "Hello!") || !strings.HasPrefix(lines[3], "What is 2 + 3? ") {
		t.Errorf("got\n%s", b.String())
	}
}
