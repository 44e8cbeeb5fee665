//go:build !linux

package hostmem

import "errors"

// DiskSpace is unsupported on this system.
func DiskSpace(string) (all, free int64, err error) { return 0, 0, errors.ErrUnsupported }
