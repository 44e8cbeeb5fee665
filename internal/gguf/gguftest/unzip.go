package gguftest

import (
	"compress/bzip2"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/atomicfile"
)

// Unzipped writes the contents of a file compressed with bzip2 to a temporary file of the given name, and returns its
// path.
func Unzipped(t testing.TB, file, name string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(bzip2.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := atomicfile.WriteFile(path, data); err != nil {
		t.Fatal(err)
	}
	return path
}
