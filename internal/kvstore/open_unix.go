//go:build unix

package kvstore

import (
	"os"
	"syscall"
)

// checksModes says that permissions have a meaning here.
const checksModes = true

// openRegular opens a file for reading. It follows no symbolic link and does not wait for a pipe.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
