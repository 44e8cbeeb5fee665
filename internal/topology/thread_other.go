//go:build !linux

package topology

import "errors"

func affinity() []int { return nil }

// Yield lets another thread run on the processor where the system supports it.
func Yield() {}

// Pin restricts the calling thread to the given processors where the system supports it.
func Pin([]int) error { return errors.ErrUnsupported }
