//go:build !linux

package hostmem

import "errors"

// Writes tells writing to a file from changing its attributes. This system cannot: there are none.
type Writes struct{}

// WatchWrites fails with errors.ErrUnsupported.
func WatchWrites(string) (*Writes, error) { return nil, errors.ErrUnsupported }

// Changes reports that the file may have been written to.
func (*Writes) Changes() (written, touched bool) { return true, false }

// Close does nothing.
func (*Writes) Close() {}
