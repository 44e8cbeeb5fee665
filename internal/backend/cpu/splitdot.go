package cpu

import (
	"github.com/heftai/heft/internal/kernels/gemv"
)

// The size of a unit of splitDot.
const (
	splitRows  = 12        // a multiple of the rows that any kernel computes at a time
	splitUnit  = 192 << 10 // bytes of weights, while as many are prefetched; half as many again with wide vectors
	splitBytes = 24 << 10  // bytes of tokens: a piece of k that fits the first-level cache

	splitColumns = 32 * gemv.SplitBlock // columns of a unit that lays out tokens
)

// splitDot is a Linear of bfloat16 weights and few tokens; see gemv.Kernels.MulSplit.
type splitDot struct{ linear }

func (op *splitDot) prepare(threads int) needs {
	scratch := op.plan(threads)
	return needs{input: op.tokens * op.set.GEMV.SplitFloats(op.w.cols), packs: ceil(op.w.cols, splitColumns), units: ceil(op.w.rows, op.unitRows), scratch: scratch}
}

// plan divides the weight into units and returns the scratch per unit.
func (op *splitDot) plan(threads int) int {
	fit := func(bytes int) int { return min(bytes/max(2*op.w.cols, 1), ceil(op.w.rows, 4*threads)) }
	if op.tokens == 1 {
		op.unitRows = op.oneTokenRows(fit(unitBytes))
	} else {
		unit := splitUnit
		if op.set.Lanes == 16 {
			unit += splitUnit / 2
		}
		op.unitRows = min(max(fit(unit)/splitRows, 1)*splitRows, op.w.rows)
	}
	return op.set.GEMV.SplitSums(op.unitRows, op.set.GEMV.SplitGroup(op.tokens))
}

func (op *splitDot) run(w *worker, unit int) {
	if !op.packed {
		op.split(unit * splitColumns)
		return
	}
	r := unit * op.unitRows
	rows := min(op.unitRows, op.w.rows-r)
	for t := 0; t < op.tokens; {
		group := op.set.GEMV.SplitGroup(op.tokens - t)
		w.record(splitDots)
		op.product(w.scratch.v, r, rows, t, group)
		t += group
	}
	op.addBias(0, op.tokens, r, rows)
}

// split lays out columns from k on of all groups of tokens.
func (op *splitDot) split(k int) {
	set, n := op.set, min(splitColumns, op.w.cols-k)
	for t := 0; t < op.tokens; {
		group := set.GEMV.SplitGroup(op.tokens - t)
		set.GEMV.SplitTokens(op.groups.x[t*set.GEMV.SplitFloats(op.w.cols)+k*group:], from(op.x, t, k), group, n)
		t += group
	}
}

// product computes rows from r on for a group of tokens from t on.
func (op *splitDot) product(sums []float32, r, rows, t, group int) {
	set, cols, w := op.set, op.w.cols, op.at(r)
	x := op.groups.x[t*set.GEMV.SplitFloats(cols):]
	blocks := ceil(cols, gemv.SplitBlock)
	step := ceil(blocks, ceil(blocks, splitBytes/(4*group*gemv.SplitBlock))) * gemv.SplitBlock
	if group <= 2 {
		step = cols // otherwise the sums would cost more than the tokens
	}
	for k := 0; k < cols; k += step {
		n, part := min(step, cols-k), w
		part.Data = w.Data[2*k:]
		set.GEMV.MulSplit(gemv.SplitProduct{Y: from(op.y, t, r), W: part, X: x[k*group:], Sums: sums, Rows: rows, Tokens: group, N: n, K: k, Last: k+n == cols})
	}
}
