package residency

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/atomicfile"
)

// TestUnfinishedFilesOfKilledProcessesAreRemoved: a start removes what a process that was killed
// has left of converted weights, as large as the model, and nothing that is being written.
func TestUnfinishedFilesOfKilledProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	killed := filepath.Join(dir, atomicfile.TempPrefix+"0123456789abcdef-killed-q8_0.safetensors")
	whole := filepath.Join(dir, "whole-q8_0.safetensors")
	for _, name := range []string{killed, whole} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	slow, err := atomicfile.Create(filepath.Join(dir, "slow-q8_0.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Discard()
	s, c, err := beginSidecar(dir, filepath.Join(dir, "next-q8_0.safetensors"), "key", []sideEntry{{name: "w", size: 8}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.abandon()
	defer c.Close()
	for name, want := range map[string]bool{killed: false, whole: true, slow.Name(): true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}
