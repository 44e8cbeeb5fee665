//go:build !linux

package hostmem

import "errors"

// PreferNode asks that pages of b come from a memory node, where the system can.
func PreferNode([]byte, int) error { return errors.ErrUnsupported }
