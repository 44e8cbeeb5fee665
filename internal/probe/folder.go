package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
)

// folderFile is the size of the file that Folder writes.
const folderFile = 64 << 20

// Folder measures the disk of folder, as [Disk] does, with a temporary file of 64 MiB that it writes
// and removes. It creates the folder. It fails if the disk has no room for the file.
func Folder(ctx context.Context, folder string, o Options) (*DiskRate, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	f, err := atomicfile.Create(filepath.Join(folder, "disk"))
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer f.Discard()
	block := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{1}) // disks may store zeros without writing them
	for at := 0; at < folderFile && ctx.Err() == nil; at += len(block) {
		_, _ = source.Read(block) // never fails
		if _, err := f.Write(block); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	o.Files = []string{f.Name()}
	rate, err := Disk(ctx, o)
	if err != nil {
		return nil, err
	}
	rate.File = folder
	return rate, nil
}
