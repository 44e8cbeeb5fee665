package toolcall

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestGoldenNotations: every golden template whose model can call tools has a notation in which calls
// can be forced, and calls that are written in it are read back. It logs the templates without calls.
func TestGoldenNotations(t *testing.T) {
	known := 0
	for _, path := range golden.Glob(t, "text/templates/files/*.jinja") {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := setOf(t, string(src))
		f := Find(set)
		if !f.Calls() {
			t.Logf("%s: the template has no calls", filepath.Base(path))
			continue
		}
		n := f.Notation(set)
		if n == nil {
			t.Errorf("%s: calls of the family %s cannot be forced", filepath.Base(path), f.Name())
			continue
		}
		known++
		forcedReadsBack(t, path, f, n)
	}
	golden.Count(t, "text/templates notations", known)
}

// forcedReadsBack reads a call that is written in a notation, as a forced one is.
func forcedReadsBack(t *testing.T, path string, f *Family, n *Notation) {
	t.Helper()
	tools, arguments := newProber(nil, nil).tools, `{"zqa":"x","zqn":7}`
	written := arguments
	if n.Arguments != nil {
		written = n.Arguments.write(true)
	}
	m := f.Parse(n.call(n.Before, probeNames[2], written, 0)+n.After, Options{Prompt: harmonyNext, Tools: tools})
	if len(m.Calls) != 1 || m.Calls[0].Name != probeNames[2] || !sameJSON(m.Calls[0].Arguments, arguments) {
		t.Errorf("%s: %+v", path, m)
	}
}

// TestUnseenNotations: calls can be forced with all templates whose notations are learned, and a forced call
// is read back.
func TestUnseenNotations(t *testing.T) {
	paths, err := filepath.Glob("testdata/unseen/*.jinja")
	if err != nil || len(paths) < 85 {
		t.Fatalf("%d templates, %v", len(paths), err)
	}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := setOf(t, string(src))
		f := Find(set)
		n := f.Notation(set)
		if n == nil {
			t.Errorf("%s: calls cannot be forced", filepath.Base(path))
			continue
		}
		forcedReadsBack(t, path, f, n)
	}
}

// TestTheNameAtTheEndOfACallIsItsOwn: the closing tag of a forced call had the name of a call that was rendered to
// learn the notation.
func TestTheNameAtTheEndOfACallIsItsOwn(t *testing.T) {
	for _, name := range []string{"name-in-closing-tag", "element-named"} {
		set := setOf(t, source(t, "unseen/"+name))
		n := Find(set).Notation(set)
		if n == nil || n.Again == "" || strings.Contains(n.After+n.Between+n.Again, probeNames[0]) {
			t.Errorf("%s: %+v", name, n)
		}
	}
}
