package hostmem

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Extend makes a file n bytes long and takes the room for them, so that later writes do not
// find the disk full. Where the file system cannot take room ahead it is only made longer.
func Extend(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if err == nil || !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	return f.Truncate(n)
}
