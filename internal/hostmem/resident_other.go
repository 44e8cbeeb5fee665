//go:build !linux

package hostmem

import "errors"

// Resident fails: the system does not say what is in the page cache.
func (m *Mapping) Resident(off, n int64) (int64, error) { return 0, errors.ErrUnsupported }

// Evict does nothing.
func (m *Mapping) Evict(off, n int64) {}
