//go:build !purego

package gemv

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The signatures of the generated functions in tables. Strides are in bytes.
type (
	mulKernel   func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, n, rows int64)
	mixKernel   func(y unsafe.Pointer, ys int64, p unsafe.Pointer, ps, step int64, v unsafe.Pointer, vs, keys, cols int64)
	lanesKernel func(lanes, x, v unsafe.Pointer, vs, keys, cols int64)
)

// A mulTile and a mixTile are kernels for a number of tokens.
type (
	mulTile struct {
		tokens int
		kernel mulKernel
	}
	mixTile struct {
		tokens int
		kernel mixKernel
	}
)

// mul computes p with the variant o. It is not a method of ops, because p would escape through
// the interface, and copying the operands takes as long as a short product.
func mul(o ops, p *Product) {
	if a, ok := o.(*simd); ok {
		a.mul(p)
		return
	}
	goOps{}.mul(p)
}

func (a *simd) mul(p *Product) {
	tiles := a.muls[p.W.Format]
	for t := 0; t < p.Tokens; {
		for len(tiles) > 0 && tiles[0].tokens > p.Tokens-t {
			tiles = tiles[1:]
		}
		tile := mulTile{1, a.ones[p.W.Format].For(fetch.Floats)}
		if len(tiles) > 0 {
			tile = tiles[0]
		}
		callMul(tile.kernel, asm.Bytes(p.W.Data), p.W.Stride, asm.Floats(p.X.V[t*p.X.Stride:]), p.X.Stride, asm.Floats(p.Y.V[t*p.Y.Stride:]), p.Y.Stride, p.N, p.Rows)
		t += tile.tokens
	}
}

func (a *simd) mix(y, p mat.Floats, step int, v mat.Weights, keys, tokens, cols int) {
	tiles := a.mixes[v.Format]
	for t := 0; t < tokens; {
		for tiles[0].tokens > tokens-t {
			tiles = tiles[1:]
		}
		callMix(tiles[0].kernel, asm.Floats(y.V[t*y.Stride:]), y.Stride, asm.Floats(p.V[t*p.Stride:]), p.Stride, step, asm.Bytes(v.Data), v.Stride, keys, cols)
		t += tiles[0].tokens
	}
}

// lanePiece is the number of bytes of weights per call of a lanes kernel.
const lanePiece = 128 << 10

func (a *simd) addLanes(lanes, x []float32, v mat.Weights, cols int) {
	// Use whole rounds of the lanes, so that each call begins with the first lane.
	keys := max(lanePiece/(16*cols*v.Format.Size()), 1) * 16
	for begin := 0; begin < len(x); begin += keys {
		n := min(keys, len(x)-begin)
		callLanes(a.lanes[v.Format], asm.Floats(lanes), asm.Floats(x[begin:]), asm.Bytes(v.Data[begin*v.Stride:]), v.Stride, n, cols)
	}
}

// The functions below are not inlined: the scheduler preempts a loop of kernels in their
// prologue, since it cannot preempt a kernel.

//go:noinline
func callMul(k mulKernel, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, y unsafe.Pointer, ys, n, rows int) {
	k(w, int64(ws), x, int64(4*xs), y, int64(4*ys), int64(n), int64(rows))
}

//go:noinline
func callMix(k mixKernel, y unsafe.Pointer, ys int, p unsafe.Pointer, ps, step int, v unsafe.Pointer, vs, keys, cols int) {
	k(y, int64(4*ys), p, int64(4*ps), int64(4*step), v, int64(vs), int64(keys), int64(cols))
}

//go:noinline
func callLanes(k lanesKernel, lanes, x, v unsafe.Pointer, vs, keys, cols int) {
	k(lanes, x, v, int64(vs), int64(keys), int64(cols))
}

// simd is a variant implemented in assembly. Tiles are in descending order of tokens.
type simd struct {
	ones  [mat.Formats]fetch.Forms[mulKernel] // for one token
	muls  [mat.Formats][]mulTile
	mixes [mat.Formats][]mixTile
	lanes [mat.Formats]lanesKernel
}

var avx512 = simd{
	ones: [mat.Formats]fetch.Forms[mulKernel]{
		mat.BFloat16: {Eight: avx512MulBF161x8, Four: avx512MulBF161x4, One: avx512MulBF161x1},
		mat.Float16:  {Eight: avx512MulF161x8, Four: avx512MulF161x4, One: avx512MulF161x1},
		mat.Float32:  {Eight: avx512MulF321x8, Four: avx512MulF321x4, One: avx512MulF321x1},
	},
	muls: [mat.Formats][]mulTile{
		mat.BFloat16: {{8, avx512MulBF168}, {6, avx512MulBF166}, {4, avx512MulBF164}, {2, avx512MulBF162}},
		mat.Float16:  {{8, avx512MulF168}, {6, avx512MulF166}, {4, avx512MulF164}, {2, avx512MulF162}},
		mat.Float32:  {{8, avx512MulF328}, {6, avx512MulF326}, {4, avx512MulF324}, {2, avx512MulF322}},
	},
	mixes: [mat.Formats][]mixTile{
		mat.BFloat16: {{6, avx512MixBF166}, {4, avx512MixBF164}, {2, avx512MixBF162}, {1, avx512MixBF161}},
		mat.Float16:  {{6, avx512MixF166}, {4, avx512MixF164}, {2, avx512MixF162}, {1, avx512MixF161}},
		mat.Float32:  {{6, avx512MixF326}, {4, avx512MixF324}, {2, avx512MixF322}, {1, avx512MixF321}},
	},
	lanes: [mat.Formats]lanesKernel{mat.BFloat16: avx512AddLanesBF16, mat.Float16: avx512AddLanesF16, mat.Float32: avx512AddLanesF32},
}

var avx2 = simd{
	ones: [mat.Formats]fetch.Forms[mulKernel]{
		mat.BFloat16: {Eight: avx2MulBF161, Four: avx2MulBF161, One: avx2MulBF161x1},
		mat.Float16:  {Eight: avx2MulF161, Four: avx2MulF161, One: avx2MulF161x1},
		mat.Float32:  {Eight: avx2MulF321, Four: avx2MulF321, One: avx2MulF321x1},
	},
	muls: [mat.Formats][]mulTile{
		mat.BFloat16: {{2, avx2MulBF162}},
		mat.Float16:  {{2, avx2MulF162}},
		mat.Float32:  {{2, avx2MulF322}},
	},
	mixes: [mat.Formats][]mixTile{
		mat.BFloat16: {{6, avx2MixBF166}, {4, avx2MixBF164}, {2, avx2MixBF162}, {1, avx2MixBF161}},
		mat.Float16:  {{6, avx2MixF166}, {4, avx2MixF164}, {2, avx2MixF162}, {1, avx2MixF161}},
		mat.Float32:  {{6, avx2MixF326}, {4, avx2MixF324}, {2, avx2MixF322}, {1, avx2MixF321}},
	},
	lanes: [mat.Formats]lanesKernel{mat.BFloat16: avx2AddLanesBF16, mat.Float16: avx2AddLanesF16, mat.Float32: avx2AddLanesF32},
}

func opsOf(v isa.Variant) ops {
	switch v.Level {
	case isa.AVX512:
		return &avx512
	case isa.AVX2:
		return &avx2
	}
	return goOps{}
}

func splitterOf(v isa.Variant) splitter {
	switch v.Level {
	case isa.AVX512:
		return splitAVX512{}
	case isa.AVX2:
		return splitAVX2{}
	}
	return nil
}

// bf16 is the AVX-512 BF16 variant, with AMX for single tokens.
type bf16 struct{}

func pairsOf(v isa.Variant) pairer {
	if v.BF16 {
		return bf16{}
	}
	return nil
}
