package dispatchtest

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/meta"
)

// LateModel returns the folder of a model whose weights are converted and all fit into memory.
func LateModel(t *testing.T, tied, experts bool) string {
	t.Helper()
	s := Shape{Hidden: 384, Inner: 512, Heads: 6, KV: 2, Dim: 64, Vocab: 515, Layers: 4, DType: meta.BFloat16, Shift: 3, Tied: tied, Experts: experts}
	return s.Folder(t, rand.New(rand.NewPCG(8, 8)))
}

// WaitForSidecar waits for the complete sidecar file in a folder, and returns its path and
// contents.
func WaitForSidecar(t *testing.T, cache string) (string, []byte) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		for _, name := range FileNames(t, cache) {
			if !atomicfile.IsTemp(name) && strings.HasSuffix(name, ".safetensors") {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				return name, text
			}
		}
		if time.Now().After(end) {
			t.Fatalf("there is no complete side-car in %v", FileNames(t, cache))
		}
	}
}

// FileNames returns the paths of the files in a folder.
func FileNames(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// LogOf returns the log output of f.
func LogOf(f func()) string {
	var b bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	f()
	return b.String()
}
