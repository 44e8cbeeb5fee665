package cpu

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// rowStreams is the number of rows read at once. The number of rows in a unit for one token is a
// multiple of it.
const rowStreams = 4

// rowsProduct is a Linear of rows of GGUF blocks that are multiplied as stored. Its inputs are
// rounded to 8-bit blocks; see qgemm.MulRows.
type rowsProduct struct {
	linear
	in mat.Pairs
}

// prepare plans units whose streams each have an odd number of rows, as in oneTokenRows.
func (op *rowsProduct) prepare(threads int) needs {
	m := &op.w
	op.in.Stride = qgemm.RowsWords(m.cols)
	each := m.cols / m.packed.Packing.BlockColumns() * m.packed.Packing.BlockBytes()
	fit := min(unitBytes/each, ceil(m.rows, 4*threads)) // several units per thread
	op.unitRows = min((max(fit/rowStreams, 1)-1|1)*rowStreams, m.rows)
	return needs{input: op.tokens * op.in.Stride, packs: op.tokens, units: ceil(m.rows, op.unitRows)}
}

func (op *rowsProduct) take(input []float32) { op.in.V = words(input) }

func (op *rowsProduct) run(w *worker, unit int) {
	m := &op.w
	if !op.packed {
		op.set.QGEMM.RoundRows(op.in.V[unit*op.in.Stride:], row(op.x, unit, m.cols))
		return
	}
	w.record(rowsInt8)
	r := unit * op.unitRows
	rows := min(op.unitRows, m.rows-r)
	op.set.QGEMM.MulRows(from(op.y, 0, r), quant.View{Packed: &m.packed, Row: m.row + r*m.step, Step: m.step, Rows: rows, Cols: m.cols}, op.in, op.tokens)
	op.addBias(0, op.tokens, r, rows)
}
