//go:build !purego

package quant

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// kernelShape is dotShape in the layout of the kernels, with room for what they store.
type kernelShape struct {
	codes, scales, x, columns, n, rows, zeros, high, round int64
	room                                                   [3]int64
}

type dotKernel func(sums, codes, x, scales, table, shape unsafe.Pointer)

// A dotTile is a kernel for a number of rows and tokens.
type dotTile struct {
	rows, tokens int
	kernels      [dotKinds]dotKernel
}

// The tiles in descending order of tokens. The last one computes one row.
var (
	dotsAVX512 = []dotTile{
		{2, 8, [dotKinds]dotKernel{avx512DotsTable2x8, avx512DotsBytes2x8, avx512DotsInt82x8, avx512DotsScaled2x8, avx512DotsUInt82x8}},
		{4, 4, [dotKinds]dotKernel{avx512DotsTable4x4, avx512DotsBytes4x4, avx512DotsInt84x4, avx512DotsScaled4x4, avx512DotsUInt84x4}},
		{4, 2, [dotKinds]dotKernel{avx512DotsTable4x2, avx512DotsBytes4x2, avx512DotsInt84x2, avx512DotsScaled4x2, avx512DotsUInt84x2}},
		{4, 1, [dotKinds]dotKernel{avx512DotsTable4x1, avx512DotsBytes4x1, avx512DotsInt84x1, avx512DotsScaled4x1, avx512DotsUInt84x1}},
		{1, 1, [dotKinds]dotKernel{avx512DotsTable1x1, avx512DotsBytes1x1, avx512DotsInt81x1, avx512DotsScaled1x1, avx512DotsUInt81x1}},
	}
	dotsAVX2 = []dotTile{
		{1, 8, [dotKinds]dotKernel{avx2DotsTable1x8, avx2DotsBytes1x8, avx2DotsInt81x8, avx2DotsScaled1x8, avx2DotsUInt81x8}},
		{1, 4, [dotKinds]dotKernel{avx2DotsTable1x4, avx2DotsBytes1x4, avx2DotsInt81x4, avx2DotsScaled1x4, avx2DotsUInt81x4}},
		{2, 2, [dotKinds]dotKernel{avx2DotsTable2x2, avx2DotsBytes2x2, avx2DotsInt82x2, avx2DotsScaled2x2, avx2DotsUInt82x2}},
		{2, 1, [dotKinds]dotKernel{avx2DotsTable2x1, avx2DotsBytes2x1, avx2DotsInt82x1, avx2DotsScaled2x1, avx2DotsUInt82x1}},
		{1, 1, [dotKinds]dotKernel{avx2DotsTable1x1, avx2DotsBytes1x1, avx2DotsInt81x1, avx2DotsScaled1x1, avx2DotsUInt81x1}},
	}
)

// dotTiles returns the tiles and the number of lanes of a's sums.
func (a *simd) dotTiles() (tiles []dotTile, lanes int) {
	if a.wide {
		return dotsAVX512, 16
	}
	return dotsAVX2, 8
}

func (a *simd) dotTile(tokens int) *dotTile {
	tiles, _ := a.dotTiles()
	for tiles[0].tokens > tokens {
		tiles = tiles[1:]
	}
	return &tiles[0]
}

func (a *simd) dotTokens(tokens int) int { return a.dotTile(tokens).tokens }

// dotRounds maps formats that values are rounded to, to the kernels' numbers for them.
var dotRounds = [mat.Formats]int64{mat.BFloat16: 1, mat.Float16: 2}

func (a *simd) dotCodes(kind dotKind, sums []float32, codes []byte, x, scales []float32, bytes []byte, table []float32, s dotShape, tokens int) {
	tile := a.dotTile(tokens)
	tiles, lanes := a.dotTiles()
	whole := s.rows - s.rows%tile.rows
	shape := (*kernelShape)(unsafe.Pointer(&table[dotSecond+2])) // one on the stack would escape through the tables of functions
	*shape = kernelShape{int64(s.codes), int64(s.scales), int64(s.x), int64(s.columns), int64(s.n), int64(whole), int64(s.zeros), int64(s.high), dotRounds[s.round], [3]int64{}}
	w, in, by, of, to := asm.Bytes(codes), asm.Floats(x), asm.Floats(scales), asm.Floats(table), asm.Floats(sums)
	if kind == byteScales {
		by = asm.Bytes(bytes)
	}
	if whole > 0 {
		callDots(tile.kernels[kind], to, w, in, by, of, unsafe.Pointer(shape))
	}
	one := tiles[len(tiles)-1].kernels[kind]
	for r := whole; r < s.rows; r++ {
		for t := range tokens {
			shape.rows = 1
			callDots(one, unsafe.Add(to, 4*lanes*(r*tokens+t)), unsafe.Add(w, r*s.codes), unsafe.Add(in, t*s.x), unsafe.Add(by, r*s.scales), of, unsafe.Pointer(shape))
		}
	}
}

// callDots is not inlined: see package asm.
//
//go:noinline
func callDots(kernel dotKernel, sums, codes, x, scales, table, shape unsafe.Pointer) {
	kernel(sums, codes, x, scales, table, shape)
}

//go:noinline
func (a *simd) foldDots(y []float32, stride int, sums []float32, rows, tokens int) {
	if a.wide {
		avx512DotsFold(asm.Floats(y), int64(4*stride), asm.Floats(sums), int64(rows), int64(tokens))
	} else {
		avx2DotsFold(asm.Floats(y), int64(4*stride), asm.Floats(sums), int64(rows), int64(tokens))
	}
}
