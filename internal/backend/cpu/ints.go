package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
)

// Sizes of a unit of ints. A step of columns of two bands stays in the first-level cache while
// tokens pass, and these in the second.
const (
	pairRows   = 2 * quant.BandRows
	streamRows = 8 * quant.BandRows
	intStep    = 512 // columns
	intTokens  = 256
	intFew     = 16 // tokens up to which all columns are one step
)

// ints is a Linear of weights in blocks of integers, whose inputs are rounded to such blocks.
type ints struct {
	linear
	in mat.Pairs
}

// roundsToInts reports whether LinearRounded rounds the input of a product with w to integers:
// where weights are in whole blocks of them, but for prompts not with AMX. Its tiles of
// integers would have to be scaled block by block, which takes longer than widening weights
// to bfloat16 once for all tokens.
func (b *Backend) roundsToInts(w backend.Matrix, role backend.Role) bool {
	if w.Quant == nil || w.Transposed || !b.set.QGEMM.Integers() || w.Rank != 2 || role == backend.Prompt && b.set.AMX {
		return false
	}
	return inBlocks(w) && w.Col%quant.BlockColumns == 0 && w.Dims[1]%quant.BlockColumns == 0
}

// inBlocks reports whether a quantised weight is in blocks of integers.
func inBlocks(w backend.Matrix) bool {
	p, _ := packing(w.Quant.Format)
	return p.BlockBytes() > 0
}

func (op *ints) prepare(threads int) needs {
	scratch := op.plan(threads)
	op.in.Stride = op.set.QGEMM.IntWords(op.w.packed.Packing, op.w.cols)
	return needs{input: op.tokens * op.in.Stride, packs: op.tokens, units: ceil(op.w.rows, op.unitRows), scratch: scratch}
}

func (op *ints) take(input []float32) { op.in.V = words(input) }

// plan cuts the weight into units and returns the scratch that one needs.
func (op *ints) plan(threads int) int {
	op.unitRows = bandRows(&op.linear, threads)
	if op.w.packed.Height > 0 {
		return 0
	}
	return ceil(op.unitRows*op.w.cols/quant.BlockColumns*op.w.packed.Packing.BlockBytes(), 4)
}

// bandRows is how many rows of a weight in bands are a unit.
func bandRows(op *linear, threads int) int {
	fit := min(unitBytes/max(op.w.cols, 1), ceil(op.w.rows, 4*threads)) // several units a thread
	fit = max(fit/pairRows, 1) * pairRows
	switch {
	case op.w.rows >= 4*threads*streamRows: // which is where one token reads fastest
		fit = max(fit/streamRows, 1) * streamRows
	case fit > 2*pairRows:
		fit = fit / (2 * pairRows) * (2 * pairRows)
	}
	return min(fit, op.w.rows)
}

func (op *ints) run(w *worker, unit int) {
	m := &op.w
	if !op.packed {
		op.set.QGEMM.NarrowInts(m.packed.Packing, op.in.V[unit*op.in.Stride:], row(op.x, unit, m.cols))
		return
	}
	r := unit * op.unitRows
	rows := min(op.unitRows, m.rows-r)
	first, col, step := m.row+r*m.step, m.col, m.step
	bands := m.packed
	if bands.Height == 0 {
		bands = op.bands(w.scratch.v, first, rows)
		first, col, step = 0, 0, 1
	}
	part := rows
	if op.tokens > intFew {
		part = pairRows
	}
	for i := 0; i < rows; i += part {
		op.mul(&bands, r+i, first+i*step, step, col, min(part, rows-i))
	}
	op.addBias(0, op.tokens, r, rows)
}

// mul computes rows of the result from r on, of which the first is in row first of bands.
func (op *ints) mul(bands *quant.Packed, r, first, step, col, rows int) {
	columns := op.w.cols
	if op.tokens > intFew {
		columns = intStep
	}
	for t := 0; t < op.tokens; t += intTokens {
		tokens := min(intTokens, op.tokens-t)
		for k := 0; k < op.w.cols; k += columns {
			x := mat.Pairs{V: op.in.V[t*op.in.Stride+op.set.QGEMM.IntWords(bands.Packing, k):], Stride: op.in.Stride}
			op.set.QGEMM.MulInts(from(op.y, t, r), bands, first, step, col+k, rows, x, tokens, min(columns, op.w.cols-k), k > 0)
		}
	}
}

// bands brings rows of a weight in rows, from row first of what is stored, into bands.
func (op *ints) bands(scratch []float32, first, rows int) quant.Packed {
	p, size := op.w.packed, op.w.packed.Packing.BlockBytes()
	out := quant.Packed{Packing: p.Packing, Width: op.w.cols, Height: rows}
	each := p.Width / quant.BlockColumns * size
	at := first*each + op.w.col/quant.BlockColumns*size
	out.Codes = tensor.Floats(scratch, len(scratch)).Data[:rows*op.w.cols/quant.BlockColumns*size]
	op.set.Quant.Bands(p.Packing, out.Codes, p.Codes[at:], op.w.step*each, rows, op.w.cols/quant.BlockColumns)
	return out
}
