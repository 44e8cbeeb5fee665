//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package hub

import (
	"errors"
	"syscall"
)

// diskFull reports whether a write failed because the disk is full.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
