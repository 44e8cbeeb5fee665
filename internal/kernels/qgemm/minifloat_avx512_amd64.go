//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/vector"
)

// wideCodes is AVX-512. For E4M3 it scales tokens by the block's scale if all rows of the block are
// computed; for MXFP4 it works line by line and scales and adds the sums of 8 products.
type wideCodes struct {
	gemv   gemv.Kernels
	vector vector.Kernels
}

const (
	// codesBytes are those of the tokens and the widened weights that meet at a time: what the
	// first-level cache holds.
	codesBytes = 24 << 10
	// codesOut are floats for the results of a kernel; all of scratch is in whole lines of the cache.
	codesOut = 32
)

// A codesKernel has widened rows of weights, as many as codesRows says, and a group of tokens.
type codesKernel func(room, x, sums, y unsafe.Pointer, ys, n, flags int64, next unsafe.Pointer, ws, far int64, scales unsafe.Pointer)

// codesRows is how many rows the kernel for a group has.
func codesRows(tokens int) int {
	if tokens < 8 {
		return 4
	}
	return 3
}

// codesLine is the columns of 64 bytes.
func codesLine(p *quant.Packed) int {
	if p.Packing == quant.E4M3 {
		return 64
	}
	return 128
}

func (*wideCodes) codesMost() int { return 8 }

func (*wideCodes) codesFloats(p *quant.Packed, n int) int {
	line := codesLine(p)
	return mat.CeilDiv(n, line) * line
}

// packCodes lays out blocks of 32 elements, first those of even numbers, or of 128, first the first of
// each eight: of one token after the other.
//
//go:noinline
func (c *wideCodes) packCodes(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int) {
	clear(dst[tokens*(n/codesLine(p))*codesLine(p):])
	for t := range tokens {
		if from := x.V[t*x.Stride:][:n]; p.Packing == quant.E4M3 {
			c.gemv.Deinterleave(dst[t*codesBlock:], tokens*codesBlock, from)
		} else {
			avx512PackMXFP4(asm.Floats(dst[t*128:]), int64(4*tokens*128), asm.Floats(from), int64(n))
		}
	}
}

// pieceOf is how many columns pass at a time.
func pieceOf(tokens, n int) int {
	if tokens == 1 {
		return n
	}
	return min(n, codesBytes/(4*(tokens+codesRows(tokens)))/128*128)
}

// codesSums is the length of the sums of rows, which are kept between the pieces.
func codesSums(rows, tokens int) int {
	high := codesRows(tokens)
	groups := max(mat.CeilDiv(rows, high), min(rows, high-1)) // of fewer each is computed as all rows of a kernel
	return groups*high*tokens*16 + codesOut
}

// codesScales is room for the scales of a row of blocks.
func codesScales(p *quant.Packed, n int) int { return mat.CeilDiv(mat.CeilDiv(n, p.Columns), 16) * 16 }

func (c *wideCodes) codesScratch(p *quant.Packed, rows, tokens, n int) int {
	need, piece := 0, c.codesFloats(p, pieceOf(tokens, n))
	if tokens > 1 {
		need = codesSums(rows, tokens) + codesRows(tokens)*piece
	}
	if p.Packing == quant.E4M3 {
		need += tokens*piece + codesScales(p, n)
	}
	return need
}

func (c *wideCodes) mulCodes(y mat.Floats, w quant.View, x, scratch []float32, tokens int) {
	p, row, step, rows, n := w.Packed, w.Row, w.Step, w.Rows, w.Cols
	op := codesProduct{p: p, step: step, x: x, tokens: tokens, n: n}
	if p.Packing == quant.MXFP4 {
		op.rows(y, row, rows, scratch)
		return
	}
	chunks := mat.CeilDiv(p.Width, p.Columns)
	if p.Columns >= n {
		op.rows(y, row, rows, scratch)
		for i := range rows {
			by := p.Scale((row + i*step) / p.Rows * chunks)
			for t := range tokens {
				y.V[t*y.Stride+i] *= by
			}
		}
		return
	}
	size := p.ScaleFormat.Size()
	op.scales, scratch = cut(scratch, codesScales(p, n))
	for rows > 0 {
		block := row / p.Rows
		count := min(rows, mat.CeilDiv((block+1)*p.Rows-row, step))
		c.vector.Widen(op.scales[:mat.CeilDiv(n, p.Columns)], p.Scales[block*chunks*size:][:mat.CeilDiv(n, p.Columns)*size], p.ScaleFormat)
		op.rows(y, row, count, scratch)
		y.V, row, rows = y.V[min(count, len(y.V)):], row+count*step, rows-count
	}
}

// codesProduct is a group of tokens with weights.
type codesProduct struct {
	p         *quant.Packed
	step      int
	x         []float32
	tokens, n int
	scales    []float32 // of a row of blocks, which the tokens take; nil for none
}

// scaled sets dst to n columns of the packed tokens from k on, times their scales.
//
//go:noinline
func (op *codesProduct) scaled(dst []float32, k, n int) []float32 {
	tokens, block := op.tokens, op.p.Columns
	out, line := dst[:tokens*n], codesLine(op.p)
	clear(dst[tokens*n : tokens*mat.CeilDiv(n, line)*line])
	for end := k + n; k < end; {
		cols := end - k // all, but for what is left of a block
		if k%block > 0 {
			cols = min(cols, block-k%block)
		}
		avx512ScaleBlocks(asm.Floats(out), asm.Floats(op.x[tokens*k:]), int64(tokens*cols), int64(tokens*block), asm.Floats(op.scales[k/block:]))
		out, k = out[tokens*cols:], k+cols
	}
	return dst
}

// rows computes rows from row on, whose scales are the same or are applied afterwards.
//
//go:noinline
func (op *codesProduct) rows(y mat.Floats, row, rows int, scratch []float32) {
	p, bits := op.p, 8
	var scales []byte
	if p.Packing == quant.MXFP4 {
		bits, scales = 4, p.Scales[row*p.Width/codesBlock:]
	}
	w, ws := p.Codes[row*p.Width*bits/8:], op.step*p.Width*bits/8
	if op.tokens == 1 {
		x := op.x
		if op.scales != nil {
			x = op.scaled(scratch, 0, op.n)
		}
		if p.Packing == quant.MXFP4 {
			avx512MXFP4One(asm.Bytes(w), int64(ws), asm.Floats(x), asm.Floats(y.V), int64(op.n), int64(rows), asm.Bytes(scales))
		} else {
			avx512E4M3One(asm.Bytes(w), int64(ws), asm.Floats(x), asm.Floats(y.V), int64(op.n), int64(rows))
		}
		return
	}
	high, piece := codesRows(op.tokens), pieceOf(op.tokens, op.n)
	sums, scratch := cut(scratch, codesSums(rows, op.tokens))
	room, scratch := cut(scratch, high*mat.CeilDiv(piece, codesLine(p))*codesLine(p))
	for k := 0; k < op.n; k += piece {
		n, flags, x := min(piece, op.n-k), 0, op.x[op.tokens*k:]
		if op.scales != nil {
			x = op.scaled(scratch, k, n)
		}
		if k == 0 {
			flags |= 1
		}
		if k+n == op.n {
			flags |= 2
		}
		op.piece(y, w[k*bits/8:], ws, x, sums, room, rows, n, flags, scales)
		if p.Packing == quant.MXFP4 {
			scales = scales[n/codesBlock:]
		}
	}
}

func cut(v []float32, n int) (head, tail []float32) { return v[:n], v[n:] }

// piece adds n columns to the sums of rows. The last rows of a kernel may be computed twice.
func (op *codesProduct) piece(y mat.Floats, w []byte, ws int, x, sums, room []float32, rows, n, flags int, scales []byte) {
	high, apart := codesRows(op.tokens), 0
	widen, kernel := op.kernels()
	if scales != nil {
		apart = ws / 16
	}
	each, far := high*op.tokens*16, int64(rows*ws)
	if rows >= high {
		for i := 0; i < rows; i += high {
			at := min(i, rows-high)
			from := asm.Bytes(w[at*ws:])
			widen(from, int64(ws), asm.Floats(room), int64(n))
			kernel(asm.Floats(room), asm.Floats(x), asm.Floats(sums[i/high*each:]), asm.Floats(y.V[at:]), int64(4*y.Stride), int64(n), int64(flags), from, int64(ws), far, asm.Bytes(scales[at*apart:]))
		}
		return
	}
	out := sums[len(sums)-codesOut:]
	for i := range rows {
		from := asm.Bytes(w[i*ws:])
		widen(from, 0, asm.Floats(room), int64(n))
		kernel(asm.Floats(room), asm.Floats(x), asm.Floats(sums[i*each:]), asm.Floats(out), int64(4*high), int64(n), int64(flags), from, 0, far, asm.Bytes(scales[i*apart:]))
		if flags&2 != 0 {
			for t := range op.tokens {
				y.V[t*y.Stride+i] = out[t*high]
			}
		}
	}
}

// kernels are those for codesRows rows and the tokens.
func (op *codesProduct) kernels() (func(w unsafe.Pointer, ws int64, room unsafe.Pointer, n int64), codesKernel) {
	if op.p.Packing == quant.E4M3 {
		switch op.tokens {
		case 2:
			return avx512E4M3Widen4, avx512E4M3SmallBatch2
		case 4:
			return avx512E4M3Widen4, avx512E4M3SmallBatch4
		}
		return avx512E4M3Widen3, avx512E4M3SmallBatch8
	}
	switch op.tokens {
	case 2:
		return avx512MXFP4Widen4, avx512MXFP4SmallBatch2
	case 4:
		return avx512MXFP4Widen4, avx512MXFP4SmallBatch4
	}
	return avx512MXFP4Widen3, avx512MXFP4SmallBatch8
}
