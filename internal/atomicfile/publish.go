package atomicfile

import (
	"io"
	"os"
	"path/filepath"
)

// Publish replaces the file at path by what fill writes, with the permissions perm, and syncs
// nothing: it costs as little as the rename. A reader and a killed process find the old contents or
// the new ones, whole. After a power failure the file may be damaged, so it must carry a checksum.
// The caller keeps writers of one folder apart by a lock of its own, and removes the temporary files
// of killed ones ([IsTemp]) while it holds the lock. The folder must exist.
func Publish(path string, perm os.FileMode, fill func(io.Writer) error) error {
	path = filepath.Clean(path)
	f, err := os.OpenFile(tempName(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	err = fill(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // or the next holder of the lock does
	}
	return err
}
