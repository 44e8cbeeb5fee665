//go:build !purego

package quant

import (
	"sync"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

// dotRows is the number of rows per call of a kernel.
const dotRows = 4

// Halves returns the values of all float16, of which a model's scales use few. It is safe for
// concurrent use.
func Halves() []float32 { return halves() }

var halves = sync.OnceValue(func() []float32 {
	v := make([]float32, 1<<16)
	for i := range v {
		v[i] = mat.FromFloat16(uint16(i))
	}
	return v
})

// unpackGGML holds the kernels that dequantise the other blocks of GGUF files.
var unpackGGML = [Packings]func(dst, src unsafe.Pointer, blocks int64, points unsafe.Pointer){
	Q41: avx2UnpackQ41, Q50: avx2UnpackQ50, Q51: avx2UnpackQ51, Q2K: avx2UnpackQ2K, Q3K: avx2UnpackQ3K, Q4K: avx2UnpackQ4K,
	Q5K: avx2UnpackQ5K, Q6K: avx2UnpackQ6K, IQ4NL: avx2UnpackIQ4NL, IQ4XS: avx2UnpackIQ4XS,
	MXFP4Block: avx2UnpackMX4, IQ2XXS: avx2UnpackIQ2XXS, IQ2XS: avx2UnpackIQ2XS, IQ2S: avx2UnpackIQ2S, IQ3XXS: avx2UnpackIQ3XXS,
	IQ3S: avx2UnpackIQ3S, TQ10: avx2UnpackTQ10, TQ20: avx2UnpackTQ20, NVFP4Block: avx2UnpackNV4, Q10: avx2UnpackQ10, Q20: avx2UnpackQ20,
	IQ1S: avx2UnpackIQ1S, IQ1M: avx2UnpackIQ1M,
}

// The functions below are not inlined: see package asm.

//go:noinline
func (a *simd) unpackBlocks(p Packing, dst []float32, blocks []byte) {
	to, from, n := asm.Floats(dst), asm.Bytes(blocks), int64(len(dst)/p.BlockColumns())
	switch {
	case p > Q4:
		unpackGGML[p](to, from, n, asm.Bytes(p.Points()))
	case a.wide && p == Q8:
		avx512UnpackQ8(to, from, n)
	case a.wide:
		avx512UnpackQ4(to, from, n)
	case p == Q8:
		avx2UnpackQ8(to, from, n)
	default:
		avx2UnpackQ4(to, from, n)
	}
}

//go:noinline
func (a *simd) packBlocks(p Packing, dst []byte, x []float32) {
	to, from, n := asm.Bytes(dst), asm.Floats(x), int64(len(x)/BlockColumns)
	switch {
	case a.wide && p == Q8:
		avx512PackQ8(to, from, n)
	case a.wide:
		packQ4Wide(dst, x)
	case p == Q8:
		avx2PackQ8(to, from, n)
	default:
		avx2PackQ4(to, from, n)
	}
}

// packQ4Wide packs blocks in groups, for which there is a kernel.
func packQ4Wide(dst []byte, x []float32) {
	const group, size = 16, 4 * 16 * BlockColumns
	n := len(x) / BlockColumns
	if groups := n / group; groups > 0 {
		var room [size + 64]byte
		values := room[-uintptr(unsafe.Pointer(&room))&63:]
		avx512PackQ4x16(asm.Bytes(dst), asm.Floats(x), int64(groups), asm.Bytes(values))
		dst, x, n = dst[groups*group*Q4Bytes:], x[groups*group*BlockColumns:], n%group
	}
	if n > 0 {
		avx512PackQ4(asm.Bytes(dst), asm.Floats(x), int64(n))
	}
}

func (a *simd) dots() bool { return true }

func (a *simd) dotBlocks(p Packing, y []float32, blocks []byte, stride int, x []float32) {
	for len(y) > 0 {
		n := dotRows
		if len(y) >= dotRows && fetch.Rows(p.FetchRole()) > 1 {
			a.dotFour(p, y, blocks, stride, x)
		} else {
			n = 1
			a.dotOne(p, y, blocks, x)
		}
		if y = y[n:]; len(y) > 0 {
			blocks = blocks[n*stride:]
		}
	}
}

//go:noinline
func (a *simd) dotFour(p Packing, y []float32, blocks []byte, stride int, x []float32) {
	w, in, out, n, h := asm.Bytes(blocks), asm.Floats(x), asm.Floats(y), int64(len(x)/BlockColumns), asm.Floats(halves())
	switch {
	case a.wide && p == Q8:
		avx512DotQ84(w, int64(stride), in, out, n, h)
	case a.wide:
		avx512DotQ44(w, int64(stride), in, out, n, h)
	case p == Q8:
		avx2DotQ84(w, int64(stride), in, out, n, h)
	default:
		avx2DotQ44(w, int64(stride), in, out, n, h)
	}
}

//go:noinline
func (a *simd) dotOne(p Packing, y []float32, blocks []byte, x []float32) {
	w, in, out, n, h := asm.Bytes(blocks), asm.Floats(x), asm.Floats(y), int64(len(x)/BlockColumns), asm.Floats(halves())
	switch {
	case a.wide && p == Q8:
		avx512DotQ81(w, 0, in, out, n, h)
	case a.wide:
		avx512DotQ41(w, 0, in, out, n, h)
	case p == Q8:
		avx2DotQ81(w, 0, in, out, n, h)
	default:
		avx2DotQ41(w, 0, in, out, n, h)
	}
}
