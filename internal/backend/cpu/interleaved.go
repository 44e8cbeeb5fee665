package cpu

import "github.com/heftai/heft/internal/kernels/quant"

// interleavedBytes is the size of the tokens' columns that a unit multiplies at a time. They fit
// the first-level cache together with weights.
const interleavedBytes = 24 << 10

// interleaved multiplies interleaved weights by few tokens that are not rounded. Each element is
// one sum in ascending order of the columns, as in panelProduct, which multiplies many tokens.
type interleaved struct{ linear }

func (op *interleaved) prepare(threads int) needs {
	op.unitRows = interleavedRows(&op.linear, threads)
	return needs{units: ceil(op.w.rows, op.unitRows)}
}

func (op *interleaved) run(w *worker, unit int) {
	m, r := &op.w, unit*op.unitRows
	rows := min(op.unitRows, m.rows-r)
	step := max(interleavedBytes/(4*op.tokens)/quant.BlockColumns, 1) * quant.BlockColumns
	for k := 0; k < m.cols; k += step {
		n := min(step, m.cols-k)
		w.record(interleavedFloats)
		op.set.QGEMM.MulInterleaved(from(op.y, 0, r), quant.View{Packed: &m.packed, Row: m.row + r*m.step, Step: m.step, Col: m.col + k, Rows: rows, Cols: n}, from(op.x, 0, k), op.tokens, k > 0)
	}
	op.addBias(0, op.tokens, r, rows)
}
