//go:build !purego

package vector

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (a *simd) addRounded(dst, x []float32, by float32) {
	if a.wide {
		avx512AddRounded(asm.Floats(dst), asm.Floats(x), int64(len(dst)), asm.Bits(by))
	} else {
		avx2AddRounded(asm.Floats(dst), asm.Floats(x), int64(len(dst)), asm.Bits(by))
	}
}

//go:noinline
func (a *simd) norm(dst, x, w, b []float32, mean, by, offset float32) {
	if a.wide {
		avx512Norm(asm.Floats(dst), asm.Floats(x), asm.Floats(w), asm.Floats(b), int64(len(dst)), asm.Bits(mean), asm.Bits(by), asm.Bits(offset))
	} else {
		avx2Norm(asm.Floats(dst), asm.Floats(x), asm.Floats(w), asm.Floats(b), int64(len(dst)), asm.Bits(mean), asm.Bits(by), asm.Bits(offset))
	}
}

//go:noinline
func (a *simd) sigmoid(dst, x []float32) {
	if a.wide {
		avx512Sigmoid(asm.Floats(dst), asm.Floats(x), int64(len(x)))
	} else {
		avx2Sigmoid(asm.Floats(dst), asm.Floats(x), int64(len(x)))
	}
}

//go:noinline
func (a *simd) rotate(x, y, cos, sin []float32) {
	if a.wide {
		avx512Rotate(asm.Floats(x), asm.Floats(y), asm.Floats(cos), asm.Floats(sin), int64(len(x)))
	} else {
		avx2Rotate(asm.Floats(x), asm.Floats(y), asm.Floats(cos), asm.Floats(sin), int64(len(x)))
	}
}

//go:noinline
func (a *simd) narrowBFloat16(dst []byte, x []float32) {
	if a.wide {
		avx512NarrowBF16(asm.Bytes(dst), asm.Floats(x), int64(len(x)))
		return
	}
	n := len(x) &^ 7
	avx2NarrowBF16(asm.Bytes(dst), asm.Floats(x), int64(n))
	mat.NarrowBFloat16(dst[2*n:], x[n:])
}
