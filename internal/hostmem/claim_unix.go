//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package hostmem

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Claim marks an open file as in use until it is closed or the process ends, in whatever way. The
// error is [ErrClaimed] where somebody else uses it, and another one where that cannot be told.
func Claim(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return ErrClaimed
	}
	return err
}
