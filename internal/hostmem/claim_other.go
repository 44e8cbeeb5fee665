//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package hostmem

import (
	"errors"
	"os"
)

// Claim fails: what is in use cannot be told here.
func Claim(*os.File) error { return errors.ErrUnsupported }
