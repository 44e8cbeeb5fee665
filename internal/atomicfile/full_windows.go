package atomicfile

import (
	"errors"

	"golang.org/x/sys/windows"
)

// IsFull reports whether a write failed because the disk is full.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
