//go:build !purego

package vector

import (
	"github.com/heftai/heft/internal/kernels/asm"
)

// The kernels below compute whole vectors of eight elements, and Go code computes the rest. They
// are not inlined: see package asm.

const rowLanes = 8

//go:noinline
func (a *simd) turnInterleaved(x, cos, sin []float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2TransposeInterleaved(asm.Floats(x), asm.Floats(cos), asm.Floats(sin), int64(n))
	goOps{}.turnInterleaved(x[n:], cos[n/2:], sin[n/2:])
}

//go:noinline
func (a *simd) atMost(dst, x []float32, limit float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2Min(asm.Floats(dst), asm.Floats(x), int64(n), asm.Bits(limit))
	goOps{}.atMost(dst[n:], x[n:], limit)
}

//go:noinline
func (a *simd) timesClamped(dst, g, up []float32, limit float32) {
	n := len(g) &^ (rowLanes - 1)
	avx2TimesClamped(asm.Floats(dst), asm.Floats(g), asm.Floats(up), int64(n), asm.Bits(limit))
	goOps{}.timesClamped(dst[n:], g[n:], up[n:], limit)
}

//go:noinline
func (a *simd) times(dst, x []float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2Times(asm.Floats(dst), asm.Floats(x), int64(n))
	goOps{}.times(dst[n:], x[n:])
}

//go:noinline
func (a *simd) relu(dst, x []float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2ReLU(asm.Floats(dst), asm.Floats(x), int64(n))
	goOps{}.relu(dst[n:], x[n:])
}
