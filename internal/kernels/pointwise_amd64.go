//go:build !purego

package kernels

import "math"

func bits(v float32) int64 { return int64(math.Float32bits(v)) }

//go:noinline
func (a *asm) addRounded(dst, x []float32, by float32) {
	if a.wide {
		avx512AddRounded(ptr(dst), ptr(x), int64(len(dst)), bits(by))
	} else {
		avx2AddRounded(ptr(dst), ptr(x), int64(len(dst)), bits(by))
	}
}

//go:noinline
func (a *asm) norm(dst, x, w, b []float32, mean, by, offset float32) {
	if a.wide {
		avx512Norm(ptr(dst), ptr(x), ptr(w), ptr(b), int64(len(dst)), bits(mean), bits(by), bits(offset))
	} else {
		avx2Norm(ptr(dst), ptr(x), ptr(w), ptr(b), int64(len(dst)), bits(mean), bits(by), bits(offset))
	}
}

//go:noinline
func (a *asm) turn(x, y, cos, sin []float32) {
	if a.wide {
		avx512Turn(ptr(x), ptr(y), ptr(cos), ptr(sin), int64(len(x)))
	} else {
		avx2Turn(ptr(x), ptr(y), ptr(cos), ptr(sin), int64(len(x)))
	}
}

//go:noinline
func (a *asm) narrowBFloat16(dst []byte, x []float32) {
	if a.wide {
		avx512NarrowBF16(bytePtr(dst), ptr(x), int64(len(x)))
		return
	}
	n := len(x) &^ 7
	avx2NarrowBF16(bytePtr(dst), ptr(x), int64(n))
	NarrowBFloat16(dst[2*n:], x[n:])
}
