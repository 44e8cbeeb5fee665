//go:build !purego

package quant

import (
	"math"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The functions below are not inlined, as those of asm_amd64.go.

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

// dots: a block of E4M3 is whole steps of the kernel.
func (a *simd) dots(p *Packed) bool {
	return p.Packing.BlockBytes() > 0 && p.Height == 0 || p.Packing == MXFP4 || p.Packing == E4M3 && p.Columns%64 == 0
}

func (a *simd) dot(y []float32, p *Packed, row, step int, x, scratch []float32) {
	last := row + (len(y)-1)*step
	if p.Packing == MXFP4 {
		stride, each := p.Width/2, p.Width/32
		codes, scales := p.Codes[:(last+1)*stride], p.Scales[:(last+1)*each]
		for i := 0; i < len(y); {
			r := row + i*step
			i += a.dotMXFP4(y[i:], codes[r*stride:], step*stride, x, scales[r*each:], step*each)
		}
		return
	}
	first, count := row/p.Rows*mat.CeilDiv(p.Width, p.Columns), mat.CeilDiv(len(x), p.Columns)
	scratch = scratch[:count]
	for i := range scratch {
		scratch[i] = p.Scale(first+i) * 256 // the kernels' halves are too small by this power of two
		if math.IsInf(float64(scratch[i]), 0) {
			dotUnpacked(a, y, p, row, step, x)
			return
		}
	}
	codes := p.Codes[:last*p.Width+len(x)]
	for i := 0; i < len(y); {
		i += a.dotE4M3(y[i:], codes[(row+i*step)*p.Width:], step*p.Width, x, scratch, p.Columns)
	}
}

// dotUnpacked is dot where a scale is so large that the kernel's would be infinite.
func dotUnpacked(a *simd, y []float32, p *Packed, row, step int, x []float32) {
	values := make([]float32, len(x))
	for i := range y {
		p.unpackE4M3(a, values, row+i*step, 0)
		w := mat.Weights{Data: unsafe.Slice((*byte)(asm.Floats(values)), 4*len(values)), Stride: 4 * len(values), Format: mat.Float32}
		a.gemv.Mul(mat.Floats{V: y[i:], Stride: 1}, w, mat.Floats{V: x, Stride: len(x)}, 1, 1, len(x))
	}
}

// dotE4M3 computes some products and says how many.
//
//go:noinline
func (a *simd) dotE4M3(y []float32, codes []byte, stride int, x, scales []float32, block int) int {
	w, ws, in, out, by, bs, n := asm.Bytes(codes), int64(stride), asm.Floats(x), asm.Floats(y), asm.Floats(scales), int64(block), int64(len(x))
	switch four := len(y) >= 4; {
	case a.wide && four:
		avx512DotE4M34(w, ws, in, out, by, bs, n)
		return 4
	case four:
		avx2DotE4M34(w, ws, in, out, by, bs, n)
		return 4
	case a.wide:
		avx512DotE4M31(w, ws, in, out, by, bs, n)
	default:
		avx2DotE4M31(w, ws, in, out, by, bs, n)
	}
	return 1
}

// dotMXFP4 is dotE4M3 of the other format.
//
//go:noinline
func (a *simd) dotMXFP4(y []float32, codes []byte, stride int, x []float32, scales []byte, step int) int {
	w, ws, in, out, by, bs, n := asm.Bytes(codes), int64(stride), asm.Floats(x), asm.Floats(y), asm.Bytes(scales), int64(step), int64(len(x))
	switch {
	case a.wide && len(y) >= 4:
		avx512DotMXFP44(w, ws, in, out, by, bs, n)
		return 4
	case a.wide:
		avx512DotMXFP41(w, ws, in, out, by, bs, n)
	case len(y) >= 2:
		avx2DotMXFP42(w, ws, in, out, by, bs, n)
		return 2
	default:
		avx2DotMXFP41(w, ws, in, out, by, bs, n)
	}
	return 1
}

// simd is a variant in assembly.
type simd struct {
	wide bool // AVX-512
	gemv gemv.Kernels
}

func opsOf(v isa.Variant) ops {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512, gemv: gemv.For(v)}
}
