package residency

import (
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// CanKeep returns nil if folder has, or has room for, the file of c's weights converted to
// format, of the given size. Otherwise it returns the reason. It leaves no file.
func CanKeep(folder string, c *loader.Checkpoint, format meta.QuantFormat, bytes int64) error {
	final := filepath.Join(folder, sideName(c, format))
	if _, err := os.Stat(final); err == nil {
		return nil
	}
	if begun := atomicfile.Resume(final); begun != nil { // it has the room already
		begun.Leave()
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := atomicfile.Create(filepath.Join(folder, "room"))
	if err != nil {
		return err
	}
	defer f.Discard()
	return hostmem.Extend(f.File, bytes)
}
