//go:build !purego

package sampling

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
)

//go:noinline
func (a *simd) peak(x []float32) (top float32) {
	if a.wide {
		avx512Max(asm.Floats(x), int64(len(x)), unsafe.Pointer(&top))
		return top
	}
	n := len(x) &^ 7
	avx2Max(asm.Floats(x), int64(n), unsafe.Pointer(&top))
	return max(top, goOps{}.peak(x[n:]))
}

//go:noinline
func (a *simd) below(dst, x []float32, top, by float32) {
	c := [2]float32{top, by}
	if a.wide {
		avx512SubtractScale(asm.Floats(dst), asm.Floats(x), int64(len(dst)), unsafe.Pointer(&c))
		return
	}
	n := len(dst) &^ 7
	avx2SubtractScale(asm.Floats(dst), asm.Floats(x), int64(n), unsafe.Pointer(&c))
	goOps{}.below(dst[n:], x[n:], top, by)
}

// simd is a variant implemented in assembly.
type simd struct{ wide bool } // wide: AVX-512

func opsOf(v isa.Variant) ops {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512}
}
