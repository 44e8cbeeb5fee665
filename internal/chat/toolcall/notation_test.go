package toolcall

import (
	"os"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestGoldenNotations: calls that are written in the notation of a template are read back, and most
// golden templates whose calls have JSON arguments have one.
func TestGoldenNotations(t *testing.T) {
	known, calls := 0, 0
	for _, path := range golden.Glob(t, "text/templates/files/*.jinja") {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := setOf(t, string(src))
		f := Find(set)
		if !f.Calls() {
			continue
		}
		calls++
		n := f.Notation(set)
		if n == nil {
			continue
		}
		known++
		tools := newProber(nil, nil).tools
		m := f.Parse(n.Before+probeNames[2]+n.Infix+`{"zqa":"x"}`+n.After, Options{Prompt: harmonyNext, Tools: tools})
		if len(m.Calls) != 1 || m.Calls[0].Name != probeNames[2] || m.Calls[0].Arguments != `{"zqa":"x"}` {
			t.Errorf("%s: %+v", path, m)
		}
	}
	golden.Count(t, "text/templates notations", known)
	if calls >= 10 && known < calls*6/10 {
		t.Errorf("%d of %d templates have a notation", known, calls)
	}
}
