//go:build unix

package hostmem

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAnonymous maps n bytes of zeros, rounded up to whole pages. A region of HugePage bytes or more
// begins on a huge-page boundary and uses huge pages.
func mapAnonymous(n int) ([]byte, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON
	size := Up(n, os.Getpagesize())
	if n < HugePage {
		p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), prot, flags)
		if err != nil {
			return nil, err
		}
		return unsafe.Slice((*byte)(p), size), nil
	}
	// The system aligns to small pages only. Map a huge page more and unmap both ends.
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size)+HugePage, prot, flags)
	if err != nil {
		return nil, err
	}
	region, err := cut(unsafe.Slice((*byte)(p), size+HugePage), size)
	if err == nil {
		adviseHuge(region)
	}
	return region, err
}

// cut returns the first size bytes of all that begin on a huge-page boundary, and unmaps the rest.
func cut(all []byte, size int) ([]byte, error) {
	head := pageOffset(all, HugePage)
	for _, end := range [][]byte{all[:head], all[head+size:]} {
		if len(end) > 0 {
			if err := unmap(end); err != nil {
				return nil, err
			}
		}
	}
	return all[head : head+size : head+size], nil
}

func mapFile(f *os.File, size int) ([]byte, error) {
	p, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), size), nil
}

func stampOf(fd int) (Stamp, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return newStamp(&st), err
}

// StampAt is the stamp of the file at path.
func StampAt(path string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return newStamp(&st), nil
}

func newStamp(st *unix.Stat_t) Stamp {
	return Stamp{device: uint64(st.Dev), inode: uint64(st.Ino), size: st.Size, changed: st.Mtim.Nano()}
}

// outOfMemory reports whether the system has refused memory or address space.
func outOfMemory(err error) bool { return errors.Is(err, unix.ENOMEM) }

func unmap(region []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(region)), uintptr(len(region)))
}

func advise(b []byte, a Advice) error {
	switch a {
	case WillNeed:
		return unix.Madvise(b, unix.MADV_WILLNEED)
	case DontNeed:
		return unix.Madvise(b, unix.MADV_DONTNEED)
	case Random:
		return unix.Madvise(b, unix.MADV_RANDOM)
	case Sequential:
		return unix.Madvise(b, unix.MADV_SEQUENTIAL)
	default:
		return populate(b)
	}
}

// pageOffset is the number of bytes of b before the first page boundary.
func pageOffset(b []byte, page int) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(page-1))
}

func discard(b []byte) error { return unix.Madvise(b, unix.MADV_DONTNEED) }

// Lazy says that blocks take memory only where they were written.
const Lazy = true

// StatusChanged returns when the system last changed what it knows of the file at path, such as its time
// of modification or its permissions, in nanoseconds since 1970. Programs cannot set it. It is 0 where
// the system has none.
func StatusChanged(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ctim.Nano(), nil
}
