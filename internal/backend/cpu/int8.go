package cpu

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
)

// The size of a unit of int8Product. A step of columns of two bands of rows stays in the
// first-level cache while all tokens are multiplied by it, and the tokens stay in the
// second-level cache.
const (
	pairRows       = 2 * quant.InterleavedRows
	streamRows     = 8 * quant.InterleavedRows
	intStep        = 512 // columns
	intTokens      = 256
	int8SmallBatch = 16 // the number of tokens up to which all columns are one step
)

// int8Product is a Linear of weights in blocks of integers. Its inputs are rounded to such
// blocks.
type int8Product struct {
	linear
	in mat.Pairs
}

func (op *int8Product) prepare(threads int) needs {
	scratch := op.plan(threads)
	op.in.Stride = op.set.QGEMM.Int8Words(op.w.packed.Packing, op.w.cols)
	return needs{input: op.tokens * op.in.Stride, packs: op.tokens, units: ceil(op.w.rows, op.unitRows), scratch: scratch}
}

func (op *int8Product) take(input []float32) { op.in.V = words(input) }

// plan divides the weight into units and returns the scratch per unit.
func (op *int8Product) plan(threads int) int {
	op.unitRows = interleavedRows(&op.linear, threads)
	if op.w.packed.Height > 0 {
		return 0
	}
	return ceil(op.unitRows*op.w.cols/quant.BlockColumns*op.w.packed.Packing.BlockBytes(), 4)
}

// interleavedRows returns the number of rows of an interleaved weight in a unit.
func interleavedRows(op *linear, threads int) int {
	fit := min(unitBytes/max(op.w.cols, 1), ceil(op.w.rows, 4*threads)) // several units per thread
	fit = max(fit/pairRows, 1) * pairRows
	switch {
	case op.w.rows >= 4*threads*streamRows: // where one token is read fastest
		fit = max(fit/streamRows, 1) * streamRows
	case fit > 2*pairRows:
		fit = fit / (2 * pairRows) * (2 * pairRows)
	}
	return min(fit, op.w.rows)
}

func (op *int8Product) run(w *worker, unit int) {
	m := &op.w
	if !op.packed {
		op.set.QGEMM.RoundInt8(m.packed.Packing, op.in.V[unit*op.in.Stride:], row(op.x, unit, m.cols))
		return
	}
	r := unit * op.unitRows
	rows := min(op.unitRows, m.rows-r)
	first, col, step := m.row+r*m.step, m.col, m.step
	bands := m.packed
	if bands.Height == 0 && op.tokens == 1 && rows >= qgemm.StoredRows {
		w.record(interleavedInt8)
		op.set.QGEMM.MulInt8Stored(from(op.y, 0, r).V[:rows], quant.View{Packed: &bands, Row: first, Step: step, Col: col, Rows: rows, Cols: m.cols}, op.in.V)
		op.addBias(0, op.tokens, r, rows)
		return
	}
	if bands.Height == 0 {
		bands = op.interleave(w.scratch.v, first, rows)
		first, col, step = 0, 0, 1
	}
	part := rows
	if op.tokens > int8SmallBatch {
		part = pairRows
	}
	for i := 0; i < rows; i += part {
		w.record(interleavedInt8)
		op.mul(&bands, r+i, first+i*step, step, col, min(part, rows-i))
	}
	op.addBias(0, op.tokens, r, rows)
}

// mul computes rows of the result from r on. The first of them is row first of bands.
func (op *int8Product) mul(bands *quant.Packed, r, first, step, col, rows int) {
	columns := op.w.cols
	if op.tokens > int8SmallBatch {
		columns = intStep
	}
	for t := 0; t < op.tokens; t += intTokens {
		tokens := min(intTokens, op.tokens-t)
		for k := 0; k < op.w.cols; k += columns {
			x := mat.Pairs{V: op.in.V[t*op.in.Stride+op.set.QGEMM.Int8Words(bands.Packing, k):], Stride: op.in.Stride}
			op.set.QGEMM.MulInt8(from(op.y, t, r), quant.View{Packed: bands, Row: first, Step: step, Col: col + k, Rows: rows, Cols: min(columns, op.w.cols-k)}, x, tokens, k > 0)
		}
	}
}

// interleave interleaves rows of a weight stored by rows, from row first on.
func (op *int8Product) interleave(scratch []float32, first, rows int) quant.Packed {
	p, size := op.w.packed, op.w.packed.Packing.BlockBytes()
	out := quant.Packed{Packing: p.Packing, Width: op.w.cols, Height: rows}
	each := p.Width / quant.BlockColumns * size
	at := first*each + op.w.col/quant.BlockColumns*size
	out.Codes = tensor.Floats(scratch, len(scratch)).Data[:rows*op.w.cols/quant.BlockColumns*size]
	op.set.Quant.Interleave(p.Packing, out.Codes, p.Codes[at:], op.w.step*each, rows, op.w.cols/quant.BlockColumns)
	return out
}
