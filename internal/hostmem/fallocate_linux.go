package hostmem

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Extend makes a file n bytes long and allocates its blocks, so that later writes do not fail because
// the disk is full. On file systems that cannot allocate ahead it only sets the size.
func Extend(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if err == nil || !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	return f.Truncate(n)
}
