//go:build !unix

package hostmem

import (
	"errors"
	"os"
	"unsafe"
)

// mapAnonymous takes n bytes from the Go heap, on a page boundary as on unix.
func mapAnonymous(n int) ([]byte, error) {
	size := Up(n, directAlign)
	all := make([]byte, size+directAlign)
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(all))) & (directAlign - 1))
	return all[head : head+size : head+size], nil
}

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func outOfMemory(error) bool { return false }

func unmap([]byte) error { return nil }

func advise(_ []byte, a Advice) error {
	if a == Populate {
		return errors.ErrUnsupported
	}
	return nil
}

func stampOf(int) (Stamp, error) { return Stamp{}, errors.ErrUnsupported }

// StampAt is the stamp of the file at path.
func StampAt(path string) (Stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{size: info.Size(), changed: info.ModTime().UnixNano()}, nil
}

func pageOffset([]byte, int) int { return 0 }

func discard([]byte) error { return errors.ErrUnsupported }

func adviseHuge([]byte) {}

func adviseSmall([]byte) {}

func touch([]byte) {}

// Lazy says that blocks take memory only where they have been written.
const Lazy = false

// StatusChanged returns 0: this system does not tell when a file's status changed.
func StatusChanged(string) (int64, error) { return 0, nil }
