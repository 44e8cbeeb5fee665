package main

import (
	"bytes"
	"strings"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// TestExample: layers that do not fit into 8 GiB are on the disk.
func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b, []byte(config)); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{"8030261248 parameters", "cpu   limit", "disk  weights", "model.layers."} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
}
