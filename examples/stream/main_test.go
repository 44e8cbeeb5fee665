package main

import (
	"bytes"
	"strings"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// TestExample: both placements give one answer, and only the second reads from the disk.
func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 5 || lines[0][6:] != lines[2][6:] || len(lines[0]) < 20 {
		t.Fatalf("got\n%s", b.String())
	}
	if strings.HasSuffix(lines[1], "true") || !strings.HasSuffix(lines[3], "true") || !strings.Contains(lines[3], "in memory: 0 B") {
		t.Errorf("got\n%s", b.String())
	}
}
