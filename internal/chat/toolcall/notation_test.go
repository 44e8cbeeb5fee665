package toolcall

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestNotations prints how golden templates write calls.
func TestNotations(t *testing.T) {
	for _, path := range golden.Glob(t, "text/templates/files/*.jinja") {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := setOf(t, string(src))
		if set == nil {
			continue
		}
		f := Find(set)
		if !f.Calls() {
			continue
		}
		n := f.Notation(set)
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		if n == nil {
			t.Logf("%-40s %s: none", name, f.Name())
			continue
		}
		t.Logf("%-40s %s: %q NAME %q ARGS [%q] %q id %q", name, f.Name(), n.Before, n.Infix, n.Between, n.After, n.ID)
	}
}
