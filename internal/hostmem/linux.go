//go:build linux

package hostmem

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages. It has no effect on kernels without them.
func adviseHuge(region []byte) { _ = unix.Madvise(region, unix.MADV_HUGEPAGE) }

// adviseSmall asks for small pages.
func adviseSmall(region []byte) { _ = unix.Madvise(region, unix.MADV_NOHUGEPAGE) }

// populate reads and maps pages of a file. It fails on Linux before 5.14.
func populate(region []byte) error { return unix.Madvise(region, unix.MADV_POPULATE_READ) }

// touch brings pages of anonymous memory in. It does nothing on Linux before 5.14.
func touch(region []byte) { _ = unix.Madvise(region, unix.MADV_POPULATE_WRITE) }

// openDirect opens path for reads that bypass the page cache. refusesDirect recognises its error if the
// file system does not support that.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}

// readDirect reads whole blocks. Unlike os.File it does not continue after a short read, because the
// rest is not aligned.
func readDirect(f *os.File, buf []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(int(f.Fd()), buf, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// openDirectWrite opens path for reads and writes that bypass the page cache.
func openDirectWrite(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
}

// writeDirect writes whole blocks, perhaps fewer than buf has.
func writeDirect(f *os.File, buf []byte, off int64) (int, error) {
	for {
		n, err := unix.Pwrite(int(f.Fd()), buf, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// refusesDirect reports whether err means that the file does not support direct reads.
func refusesDirect(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// DropCache evicts what a buffered read of n bytes at off left in the page cache, unless a process
// maps it. It is a hint.
func DropCache(f *os.File, off, n int64) {
	_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_DONTNEED)
}

// ReadNoAhead keeps buffered reads of f from bringing more of the file into the page cache than they ask
// for. It is a hint.
func ReadNoAhead(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM)
}
