//go:build !linux

package kerneltest

import "testing"

// Guarded is plain memory where tests know no way to have it end where memory ends.
func Guarded(_ *testing.T, n int) []byte { return make([]byte, n) }

// GuardedFloats are n floats.
func GuardedFloats(_ *testing.T, n int) []float32 { return make([]float32, n) }

// GuardedWords are n words.
func GuardedWords(_ *testing.T, n int) []uint32 { return make([]uint32, n) }
