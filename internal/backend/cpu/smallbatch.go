package cpu

import (
	"github.com/heftai/heft/internal/kernels/gemm"
)

// The size of a unit of smallBatch. Its weights, those of the next unit and the tokens stay in
// the second-level cache.
const (
	smallBatchBytes = 256 << 10
	smallBatchRows  = 2 * gemm.SmallBatchRows
)

// smallBatch is a Linear of bfloat16 weights and a few tokens of a prompt. It has the bits of
// panelProduct; see gemm.Kernels.MulSmallBatch.
type smallBatch struct{ linear }

// prepare divides the weight into units. The last unit also has the remaining rows.
func (op *smallBatch) prepare(threads int) needs {
	fit := min(smallBatchBytes/(2*op.w.cols), ceil(op.w.rows, 4*threads))
	op.unitRows = max(fit/smallBatchRows, 1) * smallBatchRows
	return needs{input: op.set.GEMM.SmallBatchWidth(op.tokens) * op.w.cols, packs: 1, units: max(op.w.rows/op.unitRows, 1)}
}

func (op *smallBatch) run(work *worker, unit int) {
	set, cols := op.set, op.w.cols
	if !op.packed {
		set.GEMM.PackSmallBatch(op.groups.x, op.x, op.tokens, cols)
		return
	}
	r := unit * op.unitRows
	rows := op.unitRows
	if op.w.rows-r < 2*rows {
		rows = op.w.rows - r
	}
	w, ahead := op.at(r), op.unitRows*op.w.Stride
	next := w.Data[min(ahead, len(w.Data)):]
	work.record(smallBatches)
	set.GEMM.MulSmallBatch(gemm.SmallBatch{C: from(op.y, 0, r), W: w, X: op.groups.x, Rows: rows, Tokens: op.tokens, N: cols, Next: next[:min(ahead, len(next))]})
	op.addBias(0, op.tokens, r, rows)
}
