package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// A test whose path has a typo compared nothing and passed.
func TestAPathWithoutFixturesIsAnError(t *testing.T) {
	dir := t.TempDir()
	own, shared, further := filepath.Join(dir, "own"), filepath.Join(dir, "shared"), filepath.Join(dir, "further")
	for _, name := range []string{"own/text/cases/a.json", "shared/train/trace.json.gz", "further/text/x"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what, root, pattern, shared string
		fails                       bool
	}{
		{"a root has it", own, "own/text/cases/*.json", shared, false},
		{"the other root has it, packed", own, "own/train/trace.json", shared, false},
		{"a path of the other root", own, "shared/text/cases/a.json", shared, false},
		{"a typo", own, "own/text/case/*.json", shared, true},
		{"a typo below the other root", own, "shared/trian/trace.json", shared, true},
		{"a typo beside the test", own, "testdata/typo.json", shared, true},
		{"a root of further cases", further, "further/text/case/*.json", shared, false},
		{"a lone checkout", own, "own/train/trace.json", "none", false},
	} {
		err := missing(filepath.Join(dir, filepath.FromSlash(c.pattern)), c.root, own, filepath.Join(dir, filepath.Base(c.shared)))
		if (err != nil) != c.fails {
			t.Errorf("%s: got %v, want an error: %v", c.what, err, c.fails)
		}
	}
	if err := missing(filepath.Join(own, "["), own, own, shared); err == nil {
		t.Error("a broken pattern is no error")
	}
}
