//go:build !windows

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// closeBeforeRename is true where an open file cannot be renamed or removed. Its writer is then
// protected by that instead of a lock.
const closeBeforeRename = false

func rename(from, to string) error { return os.Rename(from, to) }

// SyncDir syncs the names in a folder to disk. It succeeds without doing so where the file system
// does not sync folders or the folder cannot be opened.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close() // opened for reading
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
