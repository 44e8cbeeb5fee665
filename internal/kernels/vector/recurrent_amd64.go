//go:build !purego

package vector

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
)

// The functions below are not inlined: see package asm.

//go:noinline
func (a *simd) mulAdd(y, l, r []float32) {
	if a.wide {
		avx512MulAdd(asm.Floats(y), asm.Floats(l), asm.Floats(r), int64(len(y)))
	} else {
		avx2MulAdd(asm.Floats(y), asm.Floats(l), asm.Floats(r), int64(len(y)))
	}
}

//go:noinline
func (a *simd) deltaRead(seen, state, k []float32) {
	if a.wide {
		avx512DeltaRead(asm.Floats(seen), asm.Floats(state), asm.Floats(k), int64(len(k)), int64(len(seen)))
	} else {
		avx2DeltaRead(asm.Floats(seen), asm.Floats(state), asm.Floats(k), int64(len(k)), int64(len(seen)))
	}
}

//go:noinline
func (a *simd) deltaStep(dst, state, kq, change []float32, decay float32) {
	to, s, both, add := asm.Floats(dst), asm.Floats(state), asm.Floats(kq), asm.Floats(change)
	if a.wide {
		avx512DeltaStep(to, s, both, add, int64(len(kq)/2), int64(len(dst)), unsafe.Pointer(&decay))
	} else {
		avx2DeltaStep(to, s, both, add, int64(len(kq)/2), int64(len(dst)), unsafe.Pointer(&decay))
	}
}
