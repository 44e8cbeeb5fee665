//go:build unix && !linux

package hostmem

import "errors"

// adviseHuge does nothing: only Linux is asked.
func adviseHuge([]byte) {}

func adviseSmall([]byte) {}

func touch([]byte) {}

func populate([]byte) error { return errors.ErrUnsupported }
