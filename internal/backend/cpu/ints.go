package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
)

// ints is a Linear of weights in blocks of integers for generated tokens, whose inputs are
// rounded to such blocks.
type ints struct {
	linear
	in     kernels.Pairs
	packed bool // x is in blocks: the units are rows of the weight
}

// roundsToInts reports whether LinearRounded rounds the input of a product with w to integers:
// for generated tokens, where it saves time, of weights in whole blocks as they lie.
func (b *Backend) roundsToInts(w backend.Matrix, role backend.Role) bool {
	if w.Quant == nil || w.Transposed || role != backend.Generated || !b.set.Integers() || w.Rank != 2 {
		return false
	}
	return inBlocks(w) && w.Col%kernels.BlockColumns == 0 && w.Dims[1]%kernels.BlockColumns == 0
}

// inBlocks reports whether a quantised weight is in blocks of integers.
func inBlocks(w backend.Matrix) bool {
	p, _ := packing(w.Quant.Format)
	return p.BlockBytes() > 0
}

// linearInts computes the product op, whose weight roundsToInts has seen.
func (b *Backend) linearInts(op linear) {
	b.ints = ints{linear: op}
	r := &b.ints
	each := kernels.IntWords(op.w.cols)
	if err := b.input.grow(b.ledger, op.tokens*each); err != nil {
		b.fail("linear: %w", err)
		return
	}
	r.in = kernels.Pairs{V: words(b.input.v[:op.tokens*each]), Stride: each}
	b.run(r, op.tokens, op.tokens*op.w.cols)

	r.packed = true
	fit := min(unitBytes/max(op.w.cols, 1), ceil(op.w.rows, 4*len(b.pool.workers)))
	if fit > 4 {
		fit &^= 3
	}
	r.unitRows = min(max(fit, 4), op.w.rows)
	b.run(r, ceil(op.w.rows, r.unitRows), op.w.rows*op.w.cols*op.tokens)
}

func (op *ints) run(_ *worker, unit int) {
	m := &op.w
	if !op.packed {
		op.set.NarrowInts(m.packed.Packing, op.in.V[unit*op.in.Stride:], row(op.x, unit, m.cols))
		return
	}
	r := unit * op.unitRows
	rows := min(op.unitRows, m.rows-r)
	op.set.MulInts(from(op.y, 0, r), &m.packed, m.row+r*m.step, m.step, m.col, rows, op.in, op.tokens, m.cols)
	if op.bias == nil {
		return
	}
	for t := range op.tokens {
		axpy(from(op.y, t, r).V[:rows], op.bias[r:][:rows], 1)
	}
}
