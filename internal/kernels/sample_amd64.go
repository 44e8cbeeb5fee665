//go:build !purego

package kernels

import "unsafe"

//go:noinline
func (a *asm) peak(x []float32) (top float32) {
	if a.wide {
		avx512Peak(ptr(x), int64(len(x)), unsafe.Pointer(&top))
		return top
	}
	n := len(x) &^ 7
	avx2Peak(ptr(x), int64(n), unsafe.Pointer(&top))
	return max(top, goOps{}.peak(x[n:]))
}

//go:noinline
func (a *asm) below(dst, x []float32, top, by float32) {
	c := [2]float32{top, by}
	if a.wide {
		avx512Below(ptr(dst), ptr(x), int64(len(dst)), unsafe.Pointer(&c))
		return
	}
	n := len(dst) &^ 7
	avx2Below(ptr(dst), ptr(x), int64(n), unsafe.Pointer(&c))
	goOps{}.below(dst[n:], x[n:], top, by)
}
