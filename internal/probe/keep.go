package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/smallfile"
)

// keptDisk is the file of a disk's rate.
type keptDisk struct {
	Version int      `json:"version"`
	Rate    DiskRate `json:"rate"`
}

const (
	keptVersion = 3
	keptMost    = 64 << 10 // bytes of the file
)

// diskFile returns the name of the file in folder with the rate of the disk that holds path.
func diskFile(folder, path string) (string, error) {
	stamp, err := hostmem.StampAt(path)
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, fmt.Sprintf("disk-%x.json", stamp.Device())), nil
}

// KeptDisk returns the rate that KeepDisk stored in folder for the disk that holds path, or nil. A
// file that cannot be used counts as none and is logged.
func KeptDisk(folder, path string) *DiskRate {
	if folder == "" {
		return nil
	}
	name, err := diskFile(folder, path)
	if err != nil {
		return nil // a system without device numbers
	}
	data, err := smallfile.Read(name, keptMost)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var in keptDisk
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	if err == nil && in.Version != keptVersion {
		return nil // of another Heft
	}
	if err == nil && (in.Rate.Depth < 1 || in.Rate.RequestBytes < 1 || !(in.Rate.BytesPerSecond > 0)) {
		err = fmt.Errorf("got depth %d, reads of %d bytes and %g bytes per second, want more than 0", in.Rate.Depth, in.Rate.RequestBytes, in.Rate.BytesPerSecond)
	}
	if err != nil {
		slog.Warn("the stored disk rate cannot be used; measuring again", "file", name, "error", err)
		return nil
	}
	return &in.Rate
}

// KeepDisk stores the rate in folder for all files of the disk that holds r.File. With folder "" it
// does nothing.
func KeepDisk(folder string, r *DiskRate) error {
	if folder == "" {
		return nil
	}
	name, err := diskFile(folder, r.File)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	text, err := json.MarshalIndent(keptDisk{keptVersion, *r}, "", "  ")
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if err := atomicfile.WriteFile(name, append(text, '\n')); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}
