//go:build !purego

package kernels

import (
	"math"
	"unsafe"
)

// The functions below are not inlined, as those of asm_amd64.go.

//go:noinline
func (a *asm) e4m3(dst []float32, src []byte, scale float32) {
	big := scale * 256 // exact: the kernels' halves are too small by this power of two
	if math.IsInf(float64(big), 0) {
		goOps{}.e4m3(dst, src, scale)
		return
	}
	if a.wide {
		avx512UnpackE4M3(ptr(dst), bytePtr(src), int64(len(dst)), unsafe.Pointer(&big))
	} else {
		avx2UnpackE4M3(ptr(dst), bytePtr(src), int64(len(dst)), unsafe.Pointer(&big))
	}
}

//go:noinline
func (a *asm) mxfp4(dst []float32, src, scales []byte) {
	if a.wide {
		avx512UnpackMXFP4(ptr(dst), bytePtr(src), bytePtr(scales), int64(len(scales)))
	} else {
		avx2UnpackMXFP4(ptr(dst), bytePtr(src), bytePtr(scales), int64(len(scales)))
	}
}

//go:noinline
func (a *asm) nibbles(dst []float32, words []byte, shift int, scale, zero []float32) {
	if a.wide {
		avx512UnpackNibbles(ptr(dst), bytePtr(words), int64(shift), ptr(scale), ptr(zero), int64(len(dst)))
	} else {
		avx2UnpackNibbles(ptr(dst), bytePtr(words), int64(shift), ptr(scale), ptr(zero), int64(len(dst)))
	}
}

//go:noinline
func (a *asm) interleaved(dst []float32, words []byte, scale, zero []float32) {
	if a.wide {
		avx512UnpackInterleaved(ptr(dst), bytePtr(words), ptr(scale), ptr(zero), int64(len(dst)))
	} else {
		avx2UnpackInterleaved(ptr(dst), bytePtr(words), ptr(scale), ptr(zero), int64(len(dst)))
	}
}
