//go:build !purego

package vector

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
)

// The functions below are not inlined: see package asm.

//go:noinline
func (a *simd) addScaled(y, x []float32, c [9]float32) {
	if a.wide {
		avx512AddScaled(asm.Floats(y), asm.Floats(x), int64(len(y)), unsafe.Pointer(&c))
	} else {
		avx2AddScaled(asm.Floats(y), asm.Floats(x), int64(len(y)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) sum(y, l, r []float32) {
	if a.wide {
		avx512Sum(asm.Floats(y), asm.Floats(l), asm.Floats(r), int64(len(y)))
	} else {
		avx2Sum(asm.Floats(y), asm.Floats(l), asm.Floats(r), int64(len(y)))
	}
}

//go:noinline
func (a *simd) scaleShift(x []float32, c [9]float32) {
	if a.wide {
		avx512ScaleShift(asm.Floats(x), int64(len(x)), unsafe.Pointer(&c))
	} else {
		avx2ScaleShift(asm.Floats(x), int64(len(x)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) round(x []float32) {
	if a.wide {
		avx512Round(asm.Floats(x), int64(len(x)))
	} else {
		avx2Round(asm.Floats(x), int64(len(x)))
	}
}

//go:noinline
func (a *simd) dot64(l, r []float32) (s float64) {
	if a.wide {
		avx512Dot64(asm.Floats(l), asm.Floats(r), int64(len(l)), unsafe.Pointer(&s))
	} else {
		avx2Dot64(asm.Floats(l), asm.Floats(r), int64(len(l)), unsafe.Pointer(&s))
	}
	return s
}
