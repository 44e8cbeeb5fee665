//go:build !purego

package qgemm

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// minifloatAVX2 multiplies FP8 and MXFP4 weights with AVX2. Each lane sums the products of a chunk of columns, which
// have one scale. The lane adds its sums, times their scales, in ascending order. At last the upper half of the
// lanes is added to the lower one, until one lane is left.
type minifloatAVX2 struct{ gemv gemv.Kernels }

const (
	avx2MaxGroup      = 8
	avx2TokenBytes    = 24 << 10 // the packed tokens of one call of a kernel, which fit the first-level cache
	avx2KernelScratch = 464      // floats of scratch memory of a kernel; element 64 is not 0 after a NaN
)

// An avx2MinifloatKernel multiplies rows that are ws bytes apart: see avx2_minifloat.c. A tile has two for its number
// of tokens: streams reads one row of each of so many streams of neighbouring rows at a time, single one row.
type (
	avx2MinifloatKernel func(w unsafe.Pointer, ws, rows int64, scales unsafe.Pointer, each int64, x, sums unsafe.Pointer, n, chunk int64, scratch unsafe.Pointer, ahead int64)
	avx2MinifloatTile   struct {
		rows            int
		streams, single avx2MinifloatKernel
	}
)

// The tiles of 1, 2, 4 and 8 tokens.
var (
	avx2TilesE4M3 = [...]avx2MinifloatTile{
		1: {4, avx2MinifloatE4M3x4x1, avx2MinifloatE4M3x1x1}, 2: {4, avx2MinifloatE4M3x4x2, avx2MinifloatE4M3x1x2},
		4: {3, avx2MinifloatE4M3x3x4, avx2MinifloatE4M3x1x4}, 8: {3, avx2MinifloatE4M3x3x8, avx2MinifloatE4M3x1x8},
	}
	avx2TilesMXFP4 = [...]avx2MinifloatTile{
		1: {4, avx2MinifloatMXFP4x4x1, avx2MinifloatMXFP4x1x1}, 2: {4, avx2MinifloatMXFP4x4x2, avx2MinifloatMXFP4x1x2},
		4: {3, avx2MinifloatMXFP4x3x4, avx2MinifloatMXFP4x1x4}, 8: {3, avx2MinifloatMXFP4x3x8, avx2MinifloatMXFP4x1x8},
	}
)

func (*minifloatAVX2) maxGroup() int { return avx2MaxGroup }

// sharedRows is 0, since each row has its own copy of its scales.
func (*minifloatAVX2) sharedRows(*quant.Packed) int { return 0 }

// chunk returns the number of columns whose products are summed before they are multiplied by a scale. It divides the
// number of columns that share a scale, or is any size if one scale serves all n columns.
func (*minifloatAVX2) chunk(p *quant.Packed, n int) int {
	switch {
	case storedAsMXFP4(p):
		return 2 * 32 // a scale for each half of the lanes
	case p.Columns >= n || p.Columns%128 == 0:
		return 128
	case p.Columns%64 == 0:
		return 64
	}
	return 32
}

// scales returns the number of scales of a row of n columns.
func (c *minifloatAVX2) scales(p *quant.Packed, n int) int {
	if storedAsMXFP4(p) {
		return (n/32 + 1) &^ 1
	}
	return mat.CeilDiv(n, c.chunk(p, n))
}

func (*minifloatAVX2) packedFloats(p *quant.Packed, n int) int {
	if storedAsMXFP4(p) {
		return mat.CeilDiv(n, 64) * 64
	}
	return n
}

// packTokens interleaves tokens in blocks of 32 elements, of 64 for MXFP4. Within a block, elements are in the order in
// which kernels unpack codes.
func (c *minifloatAVX2) packTokens(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int) {
	for t := range tokens {
		from := x.V[t*x.Stride:][:n]
		if storedAsMXFP4(p) {
			callCodesPack(dst[64*t:], 64*tokens, from)
			continue
		}
		c.gemv.Deinterleave(dst[32*t:], 32*tokens, from)
	}
}

func (c *minifloatAVX2) scratchFloats(p *quant.Packed, rows, tokens, n int) int {
	return avx2KernelScratch + rows*(8*tokens+c.scales(p, n))
}

// avx2MinifloatProduct has the operands of one product. sums has eight lanes for each row and token, in the order in
// which mul computes rows.
type avx2MinifloatProduct struct {
	p                   *quant.Packed
	width               int // bytes of a row
	row, step           int
	tokens, n           int
	x                   []float32
	kernelScratch, sums []float32
	scales              []float32
	rowScales, chunk    int // the number of scales of a row, and the columns of a chunk
	tile                *avx2MinifloatTile
	ahead               int // bytes from these rows to the next
}

func (c *minifloatAVX2) mulRows(y mat.Floats, w quant.View, x, scratch []float32, tokens int) {
	p, row, step, rows, n := w.Packed, w.Row, w.Step, w.Rows, w.Cols
	op := avx2MinifloatProduct{p: p, width: p.Width, row: row, step: step, tokens: tokens, n: n, x: x, rowScales: c.scales(p, n), chunk: c.chunk(p, n)}
	op.tile = &avx2TilesE4M3[tokens]
	if storedAsMXFP4(p) {
		op.width, op.tile = p.Width/2, &avx2TilesMXFP4[tokens]
	}
	op.ahead = rows * step * op.width
	op.kernelScratch, scratch = scratch[:avx2KernelScratch], scratch[avx2KernelScratch:]
	op.sums, op.scales = scratch[:8*rows*tokens], scratch[8*rows*tokens:][:rows*op.rowScales]
	op.kernelScratch[64], op.kernelScratch[65] = 0, 0
	clear(op.sums)
	for i := range rows {
		to, r := op.scales[i*op.rowScales:][:op.rowScales], row+i*step
		if i > 0 && storedAsE4M3(p) && r/p.Rows == (r-step)/p.Rows {
			copy(to, op.scales[(i-1)*op.rowScales:])
			continue
		}
		c.scale(p, to, r, n)
	}
	piece := max(avx2TokenBytes/(4*tokens)/128, 1) * 128
	if tokens <= 2 {
		piece = n
	}
	streams, stream := op.tile.rows, rows/op.tile.rows
	for k := 0; k < n; k += piece {
		for i := range stream {
			op.mul(op.tile.streams, streams*i, i, stream, streams, k, min(piece, n-k))
		}
		if done := stream * streams; done < rows {
			op.mul(op.tile.single, done, done, 1, rows-done, k, min(piece, n-k))
		}
	}
	for i := range stream {
		op.fold(y, streams*i, i, stream, streams)
	}
	op.fold(y, stream*streams, stream*streams, 1, rows-stream*streams)
	if math.Float32bits(op.kernelScratch[64]) != 0 {
		op.setNaNs(y, rows)
	}
}

// mul adds the products of columns [k, k+n) of some rows to their sums. The rows are at, at+apart, at+2·apart and so on;
// their sums begin at row sum of op.sums.
func (op *avx2MinifloatProduct) mul(kernel avx2MinifloatKernel, sum, at, apart, rows, k, n int) {
	begin, first := k/2, k/32
	if storedAsE4M3(op.p) {
		begin, first = k, k/op.chunk
	}
	codes, scales := op.p.Codes[(op.row+at*op.step)*op.width+begin:], op.scales[at*op.rowScales+first:]
	callCodes(kernel, codes, apart*op.step*op.width, rows, scales, apart*op.rowScales, op.x[k*op.tokens:], op.sums[8*op.tokens*sum:], n, op.chunk, op.kernelScratch, op.ahead)
}

// fold adds the lanes of rows.
func (op *avx2MinifloatProduct) fold(y mat.Floats, sum, at, apart, rows int) {
	by := float32(1)
	if storedAsE4M3(op.p) {
		by = 256 // E4M3 codes read as float16 are 2^-8 of their values
	}
	if rows > 0 {
		callCodesFold(y.V[at:], apart, y.Stride, op.sums[8*op.tokens*sum:], rows, op.tokens, by)
	}
}

// setNaNs sets the results of rows that have an E4M3 code of a NaN.
func (op *avx2MinifloatProduct) setNaNs(y mat.Floats, rows int) {
	for i := range rows {
		if !hasNaN(op.p.Codes[(op.row+i*op.step)*op.width:][:op.n]) {
			continue
		}
		for t := range op.tokens {
			y.V[t*y.Stride+i] = float32(math.NaN())
		}
	}
}

// scale widens the scales of a row of n columns to dst.
func (c *minifloatAVX2) scale(p *quant.Packed, dst []float32, row, n int) {
	if storedAsMXFP4(p) {
		from := p.Scales[row*p.Width/32:][:n/32]
		whole := len(from) &^ 7
		dst[len(dst)-1] = 1 // where there is none
		callCodesPowers(dst, from[:whole])
		for i, e := range from[whole:] {
			dst[whole+i] = floats.FromE8M0(e)
		}
		return
	}
	first := row / p.Rows * mat.CeilDiv(p.Width, p.Columns)
	if p.Columns >= n {
		one := p.CodeScale(first)
		for i := range dst {
			dst[i] = one
		}
		return
	}
	chunk := c.chunk(p, n)
	for i := range dst {
		dst[i] = p.CodeScale(first + i*chunk/p.Columns)
	}
}

// hasNaN reports whether E4M3 codes have a NaN.
func hasNaN(codes []byte) bool {
	for ; len(codes) >= 8; codes = codes[8:] {
		// Adding one to the lower bits of a code reaches the highest bit if they are all set.
		if low := binary.LittleEndian.Uint64(codes) & 0x7f7f7f7f7f7f7f7f; (low+0x0101010101010101)&0x8080808080808080 != 0 {
			return true
		}
	}
	for _, code := range codes {
		if code&0x7f == 0x7f {
			return true
		}
	}
	return false
}

//go:noinline
func callCodesPack(dst []float32, step int, src []float32) {
	avx2MinifloatPack(asm.Floats(dst), int64(4*step), asm.Floats(src), int64(len(src)))
}

//go:noinline
func callCodesPowers(dst []float32, src []byte) {
	avx2MinifloatPowers(asm.Floats(dst), asm.Bytes(src), int64(len(src)))
}

//go:noinline
func callCodes(k avx2MinifloatKernel, codes []byte, ws, rows int, scales []float32, each int, x, sums []float32, n, chunk int, kernelScratch []float32, ahead int) {
	k(asm.Bytes(codes), int64(ws), int64(rows), asm.Floats(scales), int64(4*each), asm.Floats(x), asm.Floats(sums), int64(n), int64(chunk), asm.Floats(kernelScratch), int64(ahead))
}

//go:noinline
func callCodesFold(y []float32, yr, ys int, sums []float32, rows, tokens int, by float32) {
	avx2MinifloatFold(asm.Floats(y), int64(4*yr), int64(4*ys), asm.Floats(sums), int64(rows), int64(tokens), unsafe.Pointer(&by))
}
