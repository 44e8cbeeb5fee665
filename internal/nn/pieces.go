package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// boundLinear is a linear layer with its weight and bias, in the pieces in which the checkpoint
// stores them.
type boundLinear struct {
	*linear
	weight, bias []backend.Part
	ofAdapter    bool // weight and bias are those of an adapter (modules_to_save)
}

// apply computes dst = x·Wᵀ + b with one operation per piece of the weight, or more if the bias
// has other piece boundaries.
func (a *boundLinear) apply(c scope, dst, x tensor.Tensor) {
	a.pieces(c, x.Cols(), func(p backend.Part, begin, end int) {
		a.computePiece(c, dst, x, p.Matrix, begin, end)
	})
}

// pieces calls f for each piece of the weight, in the order of its output rows, with the range of
// these rows.
func (a *boundLinear) pieces(c scope, in int, f func(p backend.Part, begin, end int)) {
	if c.err != nil {
		return
	}
	next := 0
	for parts := a.weight; len(parts) > 0; parts = a.nextBand(c) {
		for _, p := range parts {
			begin, end, ok := a.outputRows(c.Context, p, in)
			if !ok {
				return
			}
			if begin != next {
				c.fail("%s: a piece fills rows from %d on, where row %d is next", a.linear.weight.path, begin, next)
				return
			}
			next = end
			f(p, begin, end)
		}
	}
	if next != a.out {
		c.fail("%s: pieces fill %d of %d rows", a.linear.weight.path, next, a.out)
	}
}

// nextBand returns the pieces of the next band of the weight. It first completes all products
// with the last band.
func (a *boundLinear) nextBand(c scope) []backend.Part {
	if c.banded == nil || a.ofAdapter || a.experts > 0 || c.err != nil || !c.banded.Banded(a.linear.weight.Param) {
		return nil
	}
	c.compute()
	parts := c.banded.NextBand(a.linear.weight.Param)
	if len(parts) == 0 {
		if err := c.weights.Err(); err != nil {
			c.fail("%s: %w", a.linear.weight.path, err)
		}
	}
	return parts
}

// outputRows validates a piece of the weight and returns the range of output rows that it
// computes.
func (a *boundLinear) outputRows(c *Context, p backend.Part, in int) (begin, end int, ok bool) {
	if p.Rank != 2 {
		c.fail("%s: a piece of shape %v", a.linear.weight.path, p.Shape())
		return 0, 0, false
	}
	rows, cols := p.OutRows(), p.InCols()
	if a.transposed {
		rows, cols = cols, rows
		if !p.Into.IsAll() {
			c.fail("%s: a transposed weight in pieces", a.linear.weight.path)
			return 0, 0, false
		}
	}
	begin, end = 0, a.out
	if !p.Into.IsAll() {
		begin, end = p.Into.Begin, p.Into.End
	}
	if cols != in || rows != end-begin || end > a.out {
		c.fail("%s: a piece of shape [%d %d] for rows %d to %d of %d columns", a.linear.weight.path, rows, cols, begin, end, in)
		return 0, 0, false
	}
	return begin, end, true
}

// computePiece computes columns begin to end of dst with w, with one operation per piece of the
// bias.
func (a *boundLinear) computePiece(c scope, dst, x tensor.Tensor, w backend.Matrix, begin, end int) {
	w.Transposed = w.Transposed != a.transposed
	if len(a.bias) == 0 {
		a.product(c, columns(dst, begin, end), x, w, tensor.Tensor{})
		return
	}
	from := begin
	for _, b := range a.bias {
		lo, hi := 0, a.out
		if !b.Into.IsAll() {
			lo, hi = b.Into.Begin, b.Into.End
		}
		to := min(hi, end)
		if from < lo || from >= to {
			continue
		}
		if b.Rank != 1 || b.Dims[0] != hi-lo {
			c.fail("%s: a piece of shape %v for rows %d to %d", a.linear.bias.path, b.Shape(), lo, hi)
			return
		}
		a.product(c, columns(dst, from, to), x, rowsOf(w, from-begin, to-begin), b.Slice(from-lo, to-lo))
		from = to
	}
	if from != end {
		c.fail("%s: no piece for rows %d to %d", a.linear.bias.path, from, end)
	}
}

// alternating computes the even outputs into even, and the odd ones into odd.
func (a *boundLinear) alternating(c scope, even, odd, x tensor.Tensor) {
	a.pieces(c, x.Cols(), func(p backend.Part, begin, end int) {
		if begin%2 != 0 || end%2 != 0 || p.RowStep > 1 || len(a.bias) > 1 {
			c.fail("%s: interleaved rows %d to %d of a weight with a bias in %d pieces", a.linear.weight.path, begin, end, len(a.bias))
			return
		}
		for first, dst := range [...]tensor.Tensor{even, odd} {
			w := p.Matrix
			w.Transposed = w.Transposed != a.transposed
			w = rowsOf(w, first, end-begin)
			w.RowStep = 2
			var bias tensor.Tensor
			if len(a.bias) == 1 {
				bias = a.bias[0].Slice(begin+first, end)
				bias.Stride, bias.Dims[0] = 2, (end-begin)/2
			}
			a.product(c, columns(dst, begin/2, end/2), x, w, bias)
		}
	})
}

// rowsOf returns rows [begin, end) of the logical matrix.
func rowsOf(w backend.Matrix, begin, end int) backend.Matrix {
	if begin == 0 && end == w.OutRows() {
		return w
	}
	stored := end
	if w.RowStep > 1 {
		stored = min((end-1)*w.RowStep+1, w.Dims[0])
		begin *= w.RowStep
		if w.Transposed {
			stored = min((end-1)*w.RowStep+1, w.Dims[1])
		}
	}
	if w.Transposed {
		return w.CutColumns(begin, stored)
	}
	return w.CutRows(begin, stored)
}

// columns returns columns [begin, end) of t, or t itself if that is all of it.
func columns(t tensor.Tensor, begin, end int) tensor.Tensor {
	if begin == 0 && end == t.Cols() {
		return t
	}
	return t.Columns(begin, end)
}

// groups calls f for each run of rows of r that is in one piece and in one group of the given
// number of rows: rows [begin, end) of group g have the weights w. It is for groups with
// different inputs. r must not have a bias.
func (r *linear) groups(c scope, rows int, f func(g, begin, end int, w backend.Matrix)) {
	a := r.bind(c.Context, 0)
	a.pieces(c, r.in, func(p backend.Part, begin, end int) {
		for from := begin; from < end; {
			g := from / rows
			to := min((g+1)*rows, end)
			f(g, from-g*rows, to-g*rows, rowsOf(p.Matrix, from-begin, to-begin))
			from = to
		}
	})
}
