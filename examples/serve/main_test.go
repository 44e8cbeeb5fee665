package main

import (
	"bytes"
	"strings"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := once(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if out := b.String(); !strings.HasPrefix(out, "Hello! I am Heft's demo model") || !strings.HasSuffix(out, "the server has stopped\n") {
		t.Errorf("got %q", out)
	}
}
