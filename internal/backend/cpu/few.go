package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// Sizes of a unit of few: its weights, those of the next one and the tokens stay in the second-level
// cache.
const (
	fewBytes = 256 << 10
	fewRows  = 2 * gemm.FewRows
)

// few is a Linear of bfloat16 weights and a few tokens of a prompt, with the bits of outer: see
// kernels.SumFew.
type few struct{ linear }

// byFew reports whether a Linear of a prompt that rounds nothing is one of few.
func (b *Backend) byFew(op *linear, role backend.Role) bool {
	m := &op.w
	return role == backend.Prompt && op.tokens <= gemm.FewTokens && b.set.GEMM.Few() && !m.transposed && !m.isPacked() &&
		m.Format == mat.BFloat16 && m.rows >= gemm.FewRows && m.cols > 0 && m.cols%gemm.FewColumns == 0
}

// prepare cuts the weight into units, the last of which has what is left over too.
func (op *few) prepare(threads int) needs {
	fit := min(fewBytes/(2*op.w.cols), ceil(op.w.rows, 4*threads))
	op.unitRows = max(fit/fewRows, 1) * fewRows
	return needs{input: op.set.GEMM.FewWidth(op.tokens) * op.w.cols, packs: 1, units: max(op.w.rows/op.unitRows, 1)}
}

func (op *few) run(_ *worker, unit int) {
	set, cols := op.set, op.w.cols
	if !op.packed {
		set.GEMM.PackFew(op.groups.x, op.x, op.tokens, cols)
		return
	}
	r := unit * op.unitRows
	rows := op.unitRows
	if op.w.rows-r < 2*rows {
		rows = op.w.rows - r
	}
	w, ahead := op.at(r), op.unitRows*op.w.Stride
	next := w.Data[min(ahead, len(w.Data)):]
	set.GEMM.SumFew(from(op.y, 0, r), w, op.groups.x, rows, op.tokens, cols, next[:min(ahead, len(next))])
	op.addBias(0, op.tokens, r, rows)
}
