package golden

import (
	"fmt"
	"path/filepath"
	"testing"
)

// mustExist fails t if the path or pattern of a test matches no fixture of the project: the test would
// compare nothing and pass. A root may lack what another one has, so it looks in all of them.
func mustExist(t testing.TB, pattern string) {
	t.Helper()
	top := Module(t)
	own, shared := filepath.Join(top, "testdata", "golden"), filepath.Join(top, "..", "shared", "golden")
	if err := missing(pattern, Root(t), own, shared); err != nil {
		t.Fatal(err)
	}
}

// missing returns an error for a pattern that matches no file. It returns nil if it cannot tell: in a checkout
// without the shared root, and in a root of further cases, whose files differ.
func missing(pattern, root, own, shared string) error {
	var rel string
	for _, from := range []string{root, own, shared} {
		if r, err := filepath.Rel(from, pattern); err == nil && filepath.IsLocal(r) {
			rel = r
			break
		}
	}
	switch {
	case rel == "": // a fixture of one package
	case root != own && root != shared, !isDir(own), !isDir(shared):
		return nil
	default:
		for _, from := range []string{own, shared} {
			for _, packed := range []string{"", ".gz"} {
				if found, err := filepath.Glob(filepath.Join(from, rel) + packed); err != nil || len(found) > 0 {
					return err
				}
			}
		}
	}
	return fmt.Errorf("golden: %s: got no such file in any root, want at least one: correct the path of the test", pattern)
}
