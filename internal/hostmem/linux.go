//go:build linux

package hostmem

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages. A kernel without them refuses, and small pages do.
func adviseHuge(region []byte) { _ = unix.Madvise(region, unix.MADV_HUGEPAGE) }

// adviseSmall asks for no huge pages.
func adviseSmall(region []byte) { _ = unix.Madvise(region, unix.MADV_NOHUGEPAGE) }

// populate reads and maps pages of a file. Linux before 5.14 does not know it.
func populate(region []byte) error { return unix.Madvise(region, unix.MADV_POPULATE_READ) }

// openDirect opens path past the page cache, or fails with an error that
// refusesDirect knows.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}

// readDirect is one read of whole blocks. It does not go on after a short one, as
// os.File would: the rest is no longer aligned.
func readDirect(f *os.File, buf []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(int(f.Fd()), buf, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// refusesDirect reports whether err says that this file cannot be read directly.
func refusesDirect(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// DropCache evicts what a buffered read of n bytes at off left in the page cache, unless a process
// maps it. It is a hint.
func DropCache(f *os.File, off, n int64) {
	_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_DONTNEED)
}
