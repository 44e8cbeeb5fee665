package atomicfile

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// closeBeforeRename is true where an open file cannot be renamed or removed. Its writer is then
// protected by that instead of a lock.
const closeBeforeRename = true

// rename tries again for a second while another process, such as a virus scanner, has the file
// open.
func rename(from, to string) error {
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := os.Rename(from, to)
		busy := errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
		if !busy || time.Now().After(end) {
			return err
		}
	}
}

// SyncDir does nothing: Windows does not sync folders.
func SyncDir(string) error { return nil }
