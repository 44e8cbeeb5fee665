package residency

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heftai/heft/internal/hostmem"
)

// TestUnfinishedFilesOfKilledProcessesAreRemoved: a start removes what a process that was killed
// has left of converted weights, as large as the model, and nothing that is being written.
func TestUnfinishedFilesOfKilledProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, age time.Duration) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		then := time.Now().Add(-age)
		if err := os.Chtimes(f.Name(), then, then); err != nil {
			t.Fatal(err)
		}
		return f
	}
	file("killed-q8_0-1.part.safetensors", time.Minute).Close()
	file("fresh-q8_0-2.part.safetensors", 0).Close()
	file("whole-q8_0.safetensors", 9*time.Hour).Close()
	slow := file("slow-q8_0-3.part.safetensors", 2*time.Hour)
	if err := hostmem.Claim(slow); err != nil {
		return // files cannot be claimed here
	}
	forget(dir)
	for name, want := range map[string]bool{"killed-q8_0-1.part.safetensors": false, "fresh-q8_0-2.part.safetensors": true,
		"whole-q8_0.safetensors": true, "slow-q8_0-3.part.safetensors": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}
