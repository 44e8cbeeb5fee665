//go:build !linux

package kernels

import "testing"

// guarded is plain memory where tests know no way to have it end where memory ends.
func guarded(_ *testing.T, n int) []byte { return make([]byte, n) }

func guardedFloats(_ *testing.T, n int) []float32 { return make([]float32, n) }

func guardedWords(_ *testing.T, n int) []uint32 { return make([]uint32, n) }
