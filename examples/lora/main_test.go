package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
	"github.com/heftai/heft/loader/demo"
)

// TestExample: the adapter gives the answers that it was taught, and the base does not.
func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, l := range lessons {
		if want := fmt.Sprintf("%-10s %s\n", name+":", l.answer); !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
		if strings.Contains(out, demo.Name+": "+l.answer) {
			t.Errorf("the base was taught too:\n%s", out)
		}
	}
}
