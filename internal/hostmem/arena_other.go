//go:build !linux

package hostmem

import "errors"

// reserve is not supported: memory that was discarded may not contain zeros.
func reserve(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func commit([]byte) error { return errors.ErrUnsupported }
