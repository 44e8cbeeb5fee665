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

// narrowCodes are products of FP8 and MXFP4 weights with few tokens in AVX2. Columns are added up in
// chunks, each of one scale, lane by lane; a lane's sums of chunks are multiplied by their scales
// as they are added in ascending order, and the lanes are added in halves.
type narrowCodes struct{ gemv gemv.Kernels }

// Sizes of its pieces.
const (
	narrowMost  = 8
	narrowPiece = 24 << 10 // of tokens, which the first-level cache holds while rows pass
	narrowKept  = 464      // floats of scratch that kernels use
)

// A narrowCodesKernel computes some rows a distance apart: see avx2codes.c. A tile has a kernel for so
// many, each of a stream of neighbours, and one for one.
type (
	narrowCodesKernel func(w unsafe.Pointer, ws, rows int64, scales unsafe.Pointer, each int64, x, sums unsafe.Pointer, n, chunk int64, scratch unsafe.Pointer, ahead int64)
	narrowCodesTile   struct {
		rows      int
		some, one narrowCodesKernel
	}
)

// The tiles of 1, 2, 4 and 8 tokens.
var (
	narrowE4M3 = [...]narrowCodesTile{
		1: {4, avx2CodesE4M3x4x1, avx2CodesE4M3x1x1}, 2: {4, avx2CodesE4M3x4x2, avx2CodesE4M3x1x2},
		4: {3, avx2CodesE4M3x3x4, avx2CodesE4M3x1x4}, 8: {3, avx2CodesE4M3x3x8, avx2CodesE4M3x1x8},
	}
	narrowMXFP4 = [...]narrowCodesTile{
		1: {4, avx2CodesMXFP4x4x1, avx2CodesMXFP4x1x1}, 2: {4, avx2CodesMXFP4x4x2, avx2CodesMXFP4x1x2},
		4: {3, avx2CodesMXFP4x3x4, avx2CodesMXFP4x1x4}, 8: {3, avx2CodesMXFP4x3x8, avx2CodesMXFP4x1x8},
	}
)

func (*narrowCodes) codesMost() int { return narrowMost }

// chunk is the number of columns that are added up before they are multiplied by a scale: a divisor
// of those that have one, of n columns.
func (*narrowCodes) chunk(p *quant.Packed, n int) int {
	switch {
	case p.Packing == quant.MXFP4:
		return 2 * 32 // a scale for each half of the lanes
	case p.Columns >= n || p.Columns%128 == 0:
		return 128
	case p.Columns%64 == 0:
		return 64
	}
	return 32
}

// scales is the number of scales of a row of n columns.
func (c *narrowCodes) scales(p *quant.Packed, n int) int {
	if p.Packing == quant.MXFP4 {
		return (n/32 + 1) &^ 1
	}
	return mat.CeilDiv(n, c.chunk(p, n))
}

func (*narrowCodes) codesFloats(p *quant.Packed, n int) int {
	if p.Packing == quant.MXFP4 {
		return mat.CeilDiv(n, 64) * 64
	}
	return n
}

// packCodes interleaves tokens in blocks of 32 elements, of 64 for MXFP4. Within a block, elements are in the order in
// which kernels unpack codes.
func (c *narrowCodes) packCodes(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int) {
	for t := range tokens {
		from := x.V[t*x.Stride:][:n]
		if p.Packing == quant.MXFP4 {
			callCodesPack(dst[64*t:], 64*tokens, from)
			continue
		}
		c.gemv.Deinterleave(dst[32*t:], 32*tokens, from)
	}
}

func (c *narrowCodes) codesScratch(p *quant.Packed, rows, tokens, n int) int {
	return narrowKept + rows*(8*tokens+c.scales(p, n))
}

// narrowProduct has the operands of one product. sums has eight lanes for each row and token; rows are in the order in
// which mul takes them.
type narrowProduct struct {
	p           *quant.Packed
	width       int // bytes of a row
	row, step   int
	tokens, n   int
	x           []float32
	kept, sums  []float32
	scales      []float32
	each, chunk int
	tile        *narrowCodesTile
	ahead       int // bytes from these rows to the next
}

func (c *narrowCodes) mulCodes(y mat.Floats, w quant.View, x, scratch []float32, tokens int) {
	p, row, step, rows, n := w.Packed, w.Row, w.Step, w.Rows, w.Cols
	op := narrowProduct{p: p, width: p.Width, row: row, step: step, tokens: tokens, n: n, x: x, each: c.scales(p, n), chunk: c.chunk(p, n)}
	op.tile = &narrowE4M3[tokens]
	if p.Packing == quant.MXFP4 {
		op.width, op.tile = p.Width/2, &narrowMXFP4[tokens]
	}
	op.ahead = rows * step * op.width
	op.kept, scratch = scratch[:narrowKept], scratch[narrowKept:]
	op.sums, op.scales = scratch[:8*rows*tokens], scratch[8*rows*tokens:][:rows*op.each]
	op.kept[64], op.kept[65] = 0, 0
	clear(op.sums)
	for i := range rows {
		to, r := op.scales[i*op.each:][:op.each], row+i*step
		if i > 0 && p.Packing == quant.E4M3 && r/p.Rows == (r-step)/p.Rows {
			copy(to, op.scales[(i-1)*op.each:])
			continue
		}
		c.scale(p, to, r, n)
	}
	piece := max(narrowPiece/(4*tokens)/128, 1) * 128
	if tokens <= 2 {
		piece = n
	}
	streams, stream := op.tile.rows, rows/op.tile.rows
	for k := 0; k < n; k += piece {
		for i := range stream {
			op.mul(op.tile.some, streams*i, i, stream, streams, k, min(piece, n-k))
		}
		if done := stream * streams; done < rows {
			op.mul(op.tile.one, done, done, 1, rows-done, k, min(piece, n-k))
		}
	}
	for i := range stream {
		op.fold(y, streams*i, i, stream, streams)
	}
	op.fold(y, stream*streams, stream*streams, 1, rows-stream*streams)
	if math.Float32bits(op.kept[64]) != 0 {
		op.notNumbers(y, rows)
	}
}

// mul adds the products of columns [k, k+n) of some rows to their sums. The rows are at, at+apart, at+2·apart and so on;
// their sums begin at row sum of op.sums.
func (op *narrowProduct) mul(kernel narrowCodesKernel, sum, at, apart, rows, k, n int) {
	begin, first := k/2, k/32
	if op.p.Packing == quant.E4M3 {
		begin, first = k, k/op.chunk
	}
	codes, scales := op.p.Codes[(op.row+at*op.step)*op.width+begin:], op.scales[at*op.each+first:]
	callCodes(kernel, codes, apart*op.step*op.width, rows, scales, apart*op.each, op.x[k*op.tokens:], op.sums[8*op.tokens*sum:], n, op.chunk, op.kept, op.ahead)
}

// fold adds the lanes of rows.
func (op *narrowProduct) fold(y mat.Floats, sum, at, apart, rows int) {
	by := float32(1)
	if op.p.Packing == quant.E4M3 {
		by = 256 // codes read as halves are too small by that
	}
	if rows > 0 {
		callCodesFold(y.V[at:], apart, y.Stride, op.sums[8*op.tokens*sum:], rows, op.tokens, by)
	}
}

// notNumbers sets the results of rows with a code of E4M3 that is no number.
func (op *narrowProduct) notNumbers(y mat.Floats, rows int) {
	for i := range rows {
		if !hasNaN(op.p.Codes[(op.row+i*op.step)*op.width:][:op.n]) {
			continue
		}
		for t := range op.tokens {
			y.V[t*y.Stride+i] = float32(math.NaN())
		}
	}
}

// scale makes float32 of the scales of a row of n columns.
func (c *narrowCodes) scale(p *quant.Packed, dst []float32, row, n int) {
	if p.Packing == quant.MXFP4 {
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
		one := p.Scale(first)
		for i := range dst {
			dst[i] = one
		}
		return
	}
	chunk := c.chunk(p, n)
	for i := range dst {
		dst[i] = p.Scale(first + i*chunk/p.Columns)
	}
}

// hasNaN reports whether one of some codes of E4M3 is no number.
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
	avx2CodesPack(asm.Floats(dst), int64(4*step), asm.Floats(src), int64(len(src)))
}

//go:noinline
func callCodesPowers(dst []float32, src []byte) {
	avx2CodesPowers(asm.Floats(dst), asm.Bytes(src), int64(len(src)))
}

//go:noinline
func callCodes(k narrowCodesKernel, codes []byte, ws, rows int, scales []float32, each int, x, sums []float32, n, chunk int, kept []float32, ahead int) {
	k(asm.Bytes(codes), int64(ws), int64(rows), asm.Floats(scales), int64(4*each), asm.Floats(x), asm.Floats(sums), int64(n), int64(chunk), asm.Floats(kept), int64(ahead))
}

//go:noinline
func callCodesFold(y []float32, yr, ys int, sums []float32, rows, tokens int, by float32) {
	avx2CodesFold(asm.Floats(y), int64(4*yr), int64(4*ys), asm.Floats(sums), int64(rows), int64(tokens), unsafe.Pointer(&by))
}
