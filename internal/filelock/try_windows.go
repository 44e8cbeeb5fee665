package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// try locks one byte: the first, or one so far behind the contents that it hides none of them.
func try(f *os.File, first bool) error {
	at := new(windows.Overlapped)
	if !first {
		at.OffsetHigh = 1 << 30
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}
