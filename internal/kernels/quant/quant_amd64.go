//go:build !purego

package quant

import (
	"math"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
)

// The functions below are not inlined: see package asm.

//go:noinline
func (a *simd) e4m3(dst []float32, src []byte, scale float32) {
	big := scale * 256 // exact: the kernels' halves are too small by this power of two
	if math.IsInf(float64(big), 0) {
		goOps{}.e4m3(dst, src, scale)
		return
	}
	if a.wide {
		avx512UnpackE4M3(asm.Floats(dst), asm.Bytes(src), int64(len(dst)), unsafe.Pointer(&big))
	} else {
		avx2UnpackE4M3(asm.Floats(dst), asm.Bytes(src), int64(len(dst)), unsafe.Pointer(&big))
	}
}

//go:noinline
func (a *simd) mxfp4(dst []float32, src, scales []byte) {
	if a.wide {
		avx512UnpackMXFP4(asm.Floats(dst), asm.Bytes(src), asm.Bytes(scales), int64(len(scales)))
	} else {
		avx2UnpackMXFP4(asm.Floats(dst), asm.Bytes(src), asm.Bytes(scales), int64(len(scales)))
	}
}

//go:noinline
func (a *simd) nibbles(dst []float32, words []byte, shift int, scale, zero []float32, ahead int) {
	if a.wide {
		avx512UnpackNibbles(asm.Floats(dst), asm.Bytes(words), int64(shift), asm.Floats(scale), asm.Floats(zero), int64(len(dst)), int64(ahead))
	} else {
		avx2UnpackNibbles(asm.Floats(dst), asm.Bytes(words), int64(shift), asm.Floats(scale), asm.Floats(zero), int64(len(dst)), int64(ahead))
	}
}

//go:noinline
func (a *simd) interleaved(dst []float32, words []byte, scale, zero []float32, ahead int) {
	if a.wide {
		avx512UnpackInterleaved(asm.Floats(dst), asm.Bytes(words), asm.Floats(scale), asm.Floats(zero), int64(len(dst)), int64(ahead))
	} else {
		avx2UnpackInterleaved(asm.Floats(dst), asm.Bytes(words), asm.Floats(scale), asm.Floats(zero), int64(len(dst)), int64(ahead))
	}
}

// simd is a variant implemented in assembly.
type simd struct {
	wide bool // AVX-512
}

func opsOf(v isa.Variant) ops {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512}
}
