package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Unpacked returns a folder with the files of dir: dir itself, if none of its weights are gzipped, else a copy of the
// same name with unpacked weights. The copy exists until t ends.
func Unpacked(t testing.TB, dir string) string {
	t.Helper()
	packed, err := filepath.Glob(filepath.Join(dir, "*.safetensors.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) == 0 {
		return dir
	}
	out := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, file := range packed {
		copied := filepath.Join(out, filepath.Base(file))
		weights := strings.TrimSuffix(copied, ".gz")
		b, err := Read(strings.TrimSuffix(file, ".gz"))
		if err == nil {
			err = os.WriteFile(weights, b, 0o644)
		}
		if err == nil {
			err = os.Remove(copied)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
