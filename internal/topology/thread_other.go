//go:build !linux

package topology

import "errors"

func affinity() []int { return nil }

// Pin restricts the calling thread to the given processors where the system supports it.
func Pin([]int) error { return errors.ErrUnsupported }
