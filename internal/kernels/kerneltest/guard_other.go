//go:build !linux

package kerneltest

import "testing"

// Guarded returns n bytes of ordinary memory. Reading beyond them is not detected on this system.
func Guarded(_ *testing.T, n int) []byte { return make([]byte, n) }

// GuardedFloats returns n floats of ordinary memory.
func GuardedFloats(_ *testing.T, n int) []float32 { return make([]float32, n) }

// GuardedWords returns n words of ordinary memory.
func GuardedWords(_ *testing.T, n int) []uint32 { return make([]uint32, n) }
