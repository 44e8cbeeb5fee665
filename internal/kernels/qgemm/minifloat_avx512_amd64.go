//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/vector"
)

// minifloatAVX512 multiplies FP8 and MXFP4 weights with AVX-512. For E4M3 it multiplies the tokens by the scales of
// a row of blocks. For MXFP4 it goes from cache line to cache line, and scales each sum of 8 products.
type minifloatAVX512 struct {
	gemv   gemv.Kernels
	vector vector.Kernels
}

const (
	// avx512TileBytes limits the packed tokens and widened weights that one call of a kernel multiplies. They fit the
	// first-level cache.
	avx512TileBytes = 24 << 10
	// avx512OutFloats is the room for the results of one call of a kernel, in whole cache lines as all scratch memory.
	avx512OutFloats = 32
)

// An avx512MinifloatKernel multiplies avx512KernelRows widened rows of weights by a group of tokens.
type avx512MinifloatKernel func(widened, x, sums, y unsafe.Pointer, ys, n, flags int64, next unsafe.Pointer, ws, far int64, scales unsafe.Pointer)

// avx512KernelRows returns the number of rows that the kernel for a group of tokens multiplies.
func avx512KernelRows(tokens int) int {
	if tokens < 8 {
		return 4
	}
	return 3
}

// columnsPerLine returns the number of columns whose codes fill a cache line of 64 bytes.
func columnsPerLine(p *quant.Packed) int {
	if storedAsE4M3(p) {
		return 64
	}
	return 128
}

func (*minifloatAVX512) maxGroup() int { return 8 }

func (*minifloatAVX512) sharedRows(p *quant.Packed) int { return p.Rows }

func (*minifloatAVX512) packedFloats(p *quant.Packed, n int) int {
	line := columnsPerLine(p)
	return mat.CeilDiv(n, line) * line
}

// packTokens interleaves the tokens in blocks. For E4M3 a block has 32 elements, the even ones first. For MXFP4 it
// has 128: the first of each eight, then the second of each eight, and so on.
//
//go:noinline
func (c *minifloatAVX512) packTokens(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int) {
	clear(dst[tokens*(n/columnsPerLine(p))*columnsPerLine(p):])
	for t := range tokens {
		if from := x.V[t*x.Stride:][:n]; storedAsE4M3(p) {
			c.gemv.Deinterleave(dst[t*minifloatBlock:], tokens*minifloatBlock, from)
		} else {
			avx512PackMXFP4(asm.Floats(dst[t*128:]), int64(4*tokens*128), asm.Floats(from), int64(n))
		}
	}
}

// avx512Columns returns the number of columns that one call of a kernel multiplies.
func avx512Columns(tokens, n int) int {
	if tokens == 1 {
		return n
	}
	return min(n, avx512TileBytes/(4*(tokens+avx512KernelRows(tokens)))/128*128)
}

// avx512SumFloats returns the length in floats of the sums of rows, which are kept between calls of a kernel, and of
// its results.
func avx512SumFloats(rows, tokens int) int {
	high := avx512KernelRows(tokens)
	groups := max(mat.CeilDiv(rows, high), min(rows, high-1)) // fewer rows than a kernel has are computed one by one, each repeated
	return groups*high*tokens*16 + avx512OutFloats
}

// avx512ScaleFloats returns the length in floats of the scales of a row of blocks, in whole cache lines.
func avx512ScaleFloats(p *quant.Packed, n int) int {
	return mat.CeilDiv(mat.CeilDiv(n, p.Columns), 16) * 16
}

func (c *minifloatAVX512) scratchFloats(p *quant.Packed, rows, tokens, n int) int {
	need, piece := 0, c.packedFloats(p, avx512Columns(tokens, n))
	if tokens > 1 {
		need = avx512SumFloats(rows, tokens) + avx512KernelRows(tokens)*piece
	}
	if storedAsE4M3(p) {
		need += tokens*piece + avx512ScaleFloats(p, n)
	}
	return need
}

func (c *minifloatAVX512) mulRows(y mat.Floats, w quant.View, x, scratch []float32, tokens int) {
	p, row, step, rows, n := w.Packed, w.Row, w.Step, w.Rows, w.Cols
	op := avx512MinifloatProduct{p: p, step: step, x: x, tokens: tokens, n: n}
	if storedAsMXFP4(p) {
		op.rows(y, row, rows, scratch)
		return
	}
	chunks := mat.CeilDiv(p.Width, p.Columns)
	if p.Columns >= n {
		op.rows(y, row, rows, scratch)
		for i := range rows {
			by := p.CodeScale((row + i*step) / p.Rows * chunks)
			for t := range tokens {
				y.V[t*y.Stride+i] *= by
			}
		}
		return
	}
	op.scales, scratch = cut(scratch, avx512ScaleFloats(p, n))
	for rows > 0 {
		block := row / p.Rows
		count := min(rows, mat.CeilDiv((block+1)*p.Rows-row, step))
		c.widenScales(op.scales[:mat.CeilDiv(n, p.Columns)], p, block*chunks)
		op.rows(y, row, count, scratch)
		y.V, row, rows = y.V[min(count, len(y.V)):], row+count*step, rows-count
	}
}

// widenScales sets dst to the scales of p from the first on.
func (c *minifloatAVX512) widenScales(dst []float32, p *quant.Packed, first int) {
	from := p.Scales[first*scaleBytes(p):][:len(dst)*scaleBytes(p)]
	if p.Packing != quant.E4M3Powers {
		c.vector.Widen(dst, from, p.ScaleFormat)
		return
	}
	for i, scale := range from {
		dst[i] = floats.FromE8M0(scale)
	}
}

// avx512MinifloatProduct has the operands of a product of weights and a group of tokens.
type avx512MinifloatProduct struct {
	p         *quant.Packed
	step      int
	x         []float32
	tokens, n int
	scales    []float32 // of a row of blocks, by which the tokens are multiplied; nil for none
}

// scaled sets dst to n columns of the packed tokens from k on, times their scales.
//
//go:noinline
func (op *avx512MinifloatProduct) scaled(dst []float32, k, n int) []float32 {
	tokens, block := op.tokens, op.p.Columns
	out, line := dst[:tokens*n], columnsPerLine(op.p)
	clear(dst[tokens*n : tokens*mat.CeilDiv(n, line)*line])
	for end := k + n; k < end; {
		cols := end - k // whole blocks, after the rest of the one that k is in
		if k%block > 0 {
			cols = min(cols, block-k%block)
		}
		avx512ScaleBlocks(asm.Floats(out), asm.Floats(op.x[tokens*k:]), int64(tokens*cols), int64(tokens*block), asm.Floats(op.scales[k/block:]))
		out, k = out[tokens*cols:], k+cols
	}
	return dst
}

// rows computes rows from row on. E4M3 rows share op.scales, or the caller scales the results.
//
//go:noinline
func (op *avx512MinifloatProduct) rows(y mat.Floats, row, rows int, scratch []float32) {
	p, bits := op.p, 8
	var scales []byte
	if storedAsMXFP4(p) {
		bits, scales = 4, p.Scales[row*p.Width/minifloatBlock:]
	}
	w, ws := p.Codes[row*p.Width*bits/8:], op.step*p.Width*bits/8
	if op.tokens == 1 {
		x := op.x
		if op.scales != nil {
			x = op.scaled(scratch, 0, op.n)
		}
		if storedAsMXFP4(p) {
			avx512MXFP4One(asm.Bytes(w), int64(ws), asm.Floats(x), asm.Floats(y.V), int64(op.n), int64(rows), asm.Bytes(scales))
		} else {
			avx512E4M3One(asm.Bytes(w), int64(ws), asm.Floats(x), asm.Floats(y.V), int64(op.n), int64(rows))
		}
		return
	}
	high, piece := avx512KernelRows(op.tokens), avx512Columns(op.tokens, op.n)
	sums, scratch := cut(scratch, avx512SumFloats(rows, op.tokens))
	widened, scratch := cut(scratch, high*mat.CeilDiv(piece, columnsPerLine(p))*columnsPerLine(p))
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
		op.piece(y, w[k*bits/8:], ws, x, sums, widened, rows, n, flags, scales)
		if storedAsMXFP4(p) {
			scales = scales[n/minifloatBlock:]
		}
	}
}

func cut(v []float32, n int) (head, tail []float32) { return v[:n], v[n:] }

// piece adds the products of n columns to the sums of rows. flags has bit 0 for the first columns and bit 1 for the
// last. If rows is no multiple of the kernel's, the last call repeats some rows.
func (op *avx512MinifloatProduct) piece(y mat.Floats, w []byte, ws int, x, sums, widened []float32, rows, n, flags int, scales []byte) {
	high, scaleStride := avx512KernelRows(op.tokens), 0
	widen, kernel := op.kernels()
	if scales != nil {
		scaleStride = ws / 16
	}
	each, ahead := high*op.tokens*16, int64(rows*ws)
	if rows >= high {
		for i := 0; i < rows; i += high {
			at := min(i, rows-high)
			from := asm.Bytes(w[at*ws:])
			widen(from, int64(ws), asm.Floats(widened), int64(n))
			kernel(asm.Floats(widened), asm.Floats(x), asm.Floats(sums[i/high*each:]), asm.Floats(y.V[at:]), int64(4*y.Stride), int64(n), int64(flags), from, int64(ws), ahead, asm.Bytes(scales[at*scaleStride:]))
		}
		return
	}
	out := sums[len(sums)-avx512OutFloats:]
	for i := range rows {
		from := asm.Bytes(w[i*ws:])
		widen(from, 0, asm.Floats(widened), int64(n))
		kernel(asm.Floats(widened), asm.Floats(x), asm.Floats(sums[i*each:]), asm.Floats(out), int64(4*high), int64(n), int64(flags), from, 0, ahead, asm.Bytes(scales[i*scaleStride:]))
		if flags&2 != 0 {
			for t := range op.tokens {
				y.V[t*y.Stride+i] = out[t*high]
			}
		}
	}
}

// kernels returns the functions that widen avx512KernelRows rows, and multiply them by the tokens.
func (op *avx512MinifloatProduct) kernels() (func(w unsafe.Pointer, ws int64, room unsafe.Pointer, n int64), avx512MinifloatKernel) {
	if storedAsE4M3(op.p) {
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
