package cpu

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The size of a unit of Linear for many tokens. A piece of k of the unit's weights, widened and
// packed, and the lanes of all sums stay in the second-level cache for all tokens. The same piece
// of a group of tokens stays in the first-level cache.
const (
	groupRows = 48
	groupStep = 512 // of k: whole rounds of any variant's lanes
	sumBytes  = 512 << 10
	groupFrom = 4 // the number of groups of tokens from which packing is faster
)

// packedGroups are the packed tokens of a Linear; tokens is 0 without packing.
type packedGroups struct {
	x      []float32
	size   int // of a group
	tokens int // whose sums a unit keeps: whole groups
}

// planGroups is plan for packed groups.
func (op *linear) planGroups(threads int) int {
	set := op.set
	op.unitRows = ceil(min(groupRows, ceil(op.w.rows, 4*threads)), gemm.GroupRows) * gemm.GroupRows
	op.unitTokens, op.tokenUnits = op.tokens, 1
	each := set.GEMM.SumFloats(op.unitRows)
	op.groups.size = set.GEMM.GroupFloats(set.GEMM.GroupTokens, op.w.cols)
	op.groups.tokens = max(1, sumBytes/(4*each)) * set.GEMM.GroupTokens
	kept := ceil(min(op.groups.tokens, op.tokens), set.GEMM.GroupTokens) * each
	return set.GEMM.GroupFloats(op.unitRows, min(groupStep, op.w.cols)) + kept + op.panelScratch()
}

func (op *linear) packGroup(unit int) {
	t := unit * op.set.GEMM.GroupTokens
	op.set.GEMM.PackGroup(op.groups.x[unit*op.groups.size:], from(op.x, t, 0), min(op.set.GEMM.GroupTokens, op.tokens-t), op.w.cols)
}

// mulGroups computes a unit: piece by piece of k, for as many tokens as sums are kept.
func (op *linear) mulGroups(scratch []float32, r, rows int) {
	set, cols := op.set, op.w.cols
	w, scratch := op.source(scratch, r, rows)
	size := set.GEMM.GroupFloats(op.unitRows, min(groupStep, cols))
	packed, sums, each := scratch[:size], scratch[size:], set.GEMM.SumFloats(rows)
	for t := 0; t < op.tokens; t += op.groups.tokens {
		end := min(t+op.groups.tokens, op.tokens)
		for k := 0; k < cols; k += groupStep {
			n := min(groupStep, cols-k)
			part := w
			part.Data = w.Data[k*w.Format.Size():]
			set.GEMM.PackGroups(packed, part, rows, n)
			for i := t; i < end; i += set.GEMM.GroupTokens {
				x := op.groups.x[i/set.GEMM.GroupTokens*op.groups.size+k*set.GEMM.GroupTokens:]
				own := sums[(i-t)/set.GEMM.GroupTokens*each:]
				next := x[min(op.groups.size, len(x)):]
				set.GEMM.MulGroups(gemm.GroupProduct{Y: from(op.y, i, r), W: packed, X: x, Next: next, Sums: own, Rows: rows, Tokens: min(set.GEMM.GroupTokens, end-i), N: n, First: k == 0, Last: k+n == cols})
			}
		}
	}
}

// source returns rows of the weight from r on and the rest of the scratch. Rows that cannot be
// packed in place are copied to a panel first.
func (op *linear) source(scratch []float32, r, rows int) (mat.Weights, []float32) {
	if op.access == inPlace {
		return op.at(r), scratch
	}
	n := op.panelScratch()
	return op.panel(scratch[:n], r, rows), scratch[n:]
}
