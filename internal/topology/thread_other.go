//go:build !linux

package topology

import "errors"

func affinity() []int { return nil }

// Pin keeps the calling thread on the processors given, where the system can.
func Pin([]int) error { return errors.ErrUnsupported }
