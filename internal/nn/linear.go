package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// linear is y = x·Wᵀ + b, or a stack of such maps, one per expert.
type linear struct {
	path         string // the path by which adapters name it
	weight, bias param
	transposed   bool // the parameter is [in, out]
	in, out      int
	exact        bool // its input is never rounded
	number       int  // in Program.linears, from 1 on; 0 if adapters do not support it
	experts      int  // size of a stack, else 0
	apart        bool // passes apply parts of it, so that it takes no magnitudes (DoRA),
	scaled       bool // unless its rule applies them, see scaleHeads
}

// linear compiles a Linear of inputs of width in.
func (c *compiler) linear(n Node, in int) (*linear, error) {
	s, err := spec[meta.LinearSpec](n, meta.KindLinear)
	if err != nil {
		return nil, err
	}
	if s.In != in {
		return nil, at(n.Path, "a linear map of %d columns on %d", s.In, in)
	}
	r, err := c.affine(n, s.In, s.Out, s.Transposed)
	if err == nil {
		c.adaptable(r)
		if !s.Transposed {
			c.banded = append(c.banded, r.weight.Param)
		}
	}
	return r, err
}

// whole says that a rule needs the weight of r in one piece.
func (c *compiler) whole(r *linear) {
	c.banded = slices.DeleteFunc(c.banded, func(p *meta.Param) bool { return p == r.weight.Param })
}

// halves says that passes use the first rows of each group of r's rows, then the others.
func (c *compiler) halves(r *linear, group, first int) {
	if c.program.halves == nil {
		c.program.halves = map[*meta.Param]backend.Halves{}
	}
	c.program.halves[r.weight.Param] = backend.Halves{Group: group, First: first}
}

// usedNext moves maps to the end of the order of use so far; without it that is the order in which they
// are compiled.
func (c *compiler) usedNext(list ...*linear) {
	for _, r := range list {
		if i := slices.IndexFunc(c.banded, func(p *meta.Param) bool { return r != nil && p == r.weight.Param }); i >= 0 {
			c.banded = append(slices.Delete(c.banded, i, i+1), r.weight.Param)
		}
	}
}

// adaptable gives r a number, so that adapters can be added to it.
func (c *compiler) adaptable(r *linear) {
	c.program.linears = append(c.program.linears, r)
	r.number = len(c.program.linears)
}

// affine compiles the weight and perhaps bias of a module of any kind.
func (c *compiler) affine(n Node, in, out int, transposed bool) (*linear, error) {
	if in < 1 || out < 1 {
		return nil, at(n.Path, "a linear map of %d columns to %d", in, out)
	}
	r := &linear{path: n.Path, transposed: transposed, in: in, out: out}
	shape := []int{out, in}
	if transposed {
		shape = []int{in, out}
	}
	var err error
	if r.weight, err = c.param(n, "weight", shape...); err != nil {
		return nil, err
	}
	c.multiplies(r)
	r.bias, err = c.optional(n, "bias", out)
	return r, err
}

// linearNamed compiles the Linear that a spec names and checks its width; out 0 accepts any.
func (c *compiler) linearNamed(n Node, role, name string, in, out int) (*linear, error) {
	child, err := c.child(n, role, name)
	if err != nil {
		return nil, err
	}
	r, err := c.linear(child, in)
	if err == nil && out != 0 && r.out != out {
		return nil, at(child.Path, "a %s of width %d, wanted %d", role, r.out, out)
	}
	return r, err
}

func (r *linear) forward(c *Context, dst, x tensor.Tensor) { r.compute(c.all(), dst, x, 0) }

// compute is forward in a scope, for one expert if r is a stack.
func (r *linear) compute(c scope, dst, x tensor.Tensor, expert int) {
	r.each(c, x.Rows(), expert, func(c scope, begin, end int, w affine) { w.apply(c, dst.Slice(begin, end), x.Slice(begin, end)) })
	if len(c.lowRank.groups) > 0 {
		c.adaptPart(part{number: r.number, step: 1, expert: expert}, dst, x)
	}
}

// gates are the two halves of a fused gate projection. They are adjacent unless the weights are
// stored interleaved.
type gates struct{ both, gate, up tensor.Tensor }

// takeGates allocates memory for rows of a fused gate.
func (r *linear) takeGates(c *Context, rows int, interleaved bool) gates {
	inner := r.out / 2
	if interleaved {
		return gates{gate: c.arena.take(rows, inner), up: c.arena.take(rows, inner)}
	}
	both := c.arena.take(rows, r.out)
	return gates{both: both, gate: both.Columns(0, inner), up: both.Columns(inner, r.out)}
}

// slice returns rows [begin, end).
func (g gates) slice(begin, end int) gates {
	g.gate = g.gate.Slice(begin, end)
	if !g.up.IsZero() {
		g.up = g.up.Slice(begin, end)
	}
	if !g.both.IsZero() {
		g.both = g.both.Slice(begin, end)
	}
	return g
}

// gates computes a fused gate, for one expert if r is a stack.
func (r *linear) gates(c scope, to gates, x tensor.Tensor, expert int) {
	second, step := r.out/2, 1
	if to.both.IsZero() {
		second, step = 1, 2
	}
	r.each(c, x.Rows(), expert, func(c scope, begin, end int, w affine) {
		to, x := to.slice(begin, end), x.Slice(begin, end)
		if step == 1 {
			w.apply(c, to.both, x)
			return
		}
		w.step = step
		w.apply(c, to.gate, x)
		w.first = second
		w.apply(c, to.up, x)
	})
	if len(c.lowRank.groups) > 0 {
		c.adaptPart(part{number: r.number, step: step, expert: expert}, to.gate, x)
		c.adaptPart(part{number: r.number, first: second, step: step, expert: expert}, to.up, x)
	}
}

// affine returns the weight and bias of r, or of one of its experts.
func (r *linear) affine(c *Context, expert int) affine {
	if r.experts == 0 {
		expert = -1
	}
	w := affine{linear: r, weight: c.parts(r.weight, expert)}
	if r.bias.Param != nil {
		w.bias = c.parts(r.bias, expert)
	}
	return w
}

func (r *linear) scratch(int) int { return 0 }
func (r *linear) cols() int       { return r.out }

// affine is a linear map with its weight and bias in the pieces stored in the checkpoint.
type affine struct {
	*linear
	weight, bias []backend.Part
	own          bool // of an adapter, not of the model
	// first and step select rows first, first+step, … of the whole; step 0 means all.
	first, step int
}

// apply computes dst = x·Wᵀ + b with one operation per piece of the weight, or more if the bias has
// other piece boundaries.
func (a *affine) apply(c scope, dst, x tensor.Tensor) {
	a.pieces(c, x.Cols(), func(p backend.Part, begin, end int) {
		if a.step > 1 {
			a.strided(c, dst, x, p)
			return
		}
		a.piece(c, dst, x, p.Matrix, begin, end)
	})
}

// pieces calls f for each piece of the weight, in the order of their output rows, with the range of these rows.
func (a *affine) pieces(c scope, in int, f func(p backend.Part, begin, end int)) {
	if c.err != nil {
		return
	}
	next := 0
	for parts := a.weight; len(parts) > 0; parts = a.nextBand(c) {
		for _, p := range parts {
			begin, end, ok := a.place(c.Context, p, in)
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

// grouped calls f for the rows of r, which has no bias, piece by piece: rows [begin, end) of group g, of each rows,
// have the weights w. The groups may have different operands.
func (r *linear) grouped(c scope, each int, f func(g, begin, end int, w backend.Matrix)) {
	a := r.affine(c.Context, 0)
	a.pieces(c, r.in, func(p backend.Part, begin, end int) {
		for from := begin; from < end; {
			g := from / each
			to := min((g+1)*each, end)
			f(g, from-g*each, to-g*each, rowsOf(p.Matrix, from-begin, to-begin))
			from = to
		}
	})
}

// nextBand returns the pieces of the next band of the weight, after all products with the last one.
func (a *affine) nextBand(c scope) []backend.Part {
	if c.bander == nil || a.own || a.experts > 0 || c.err != nil || !c.bander.Banded(a.linear.weight.Param) {
		return nil
	}
	c.compute()
	parts := c.bander.NextBand(a.linear.weight.Param)
	if len(parts) == 0 {
		if err := c.weights.Err(); err != nil {
			c.fail("%s: %w", a.linear.weight.path, err)
		}
	}
	return parts
}

// place validates a piece of the weight, transposes it for the rule if needed, and returns the
// range of output rows that it computes.
func (a *affine) place(c *Context, p backend.Part, in int) (begin, end int, ok bool) {
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

// piece computes columns begin to end of dst with w, with one operation per piece of the bias.
func (a *affine) piece(c scope, dst, x tensor.Tensor, w backend.Matrix, begin, end int) {
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

// strided computes every step-th row of a weight stored in one piece.
func (a *affine) strided(c scope, dst, x tensor.Tensor, p backend.Part) {
	w := p.Matrix
	w.Transposed = w.Transposed != a.transposed
	if !p.Into.IsAll() && p.Into != (meta.RowRange{End: a.out}) || w.RowStep > 1 || len(a.bias) > 1 {
		c.fail("%s: interleaved rows of a weight in pieces", a.linear.weight.path)
		return
	}
	var bias tensor.Tensor
	if len(a.bias) == 1 {
		bias = a.bias[0].Slice(a.first, a.out)
		bias.Stride, bias.Dims[0] = a.step, dst.Cols()
	}
	w = rowsOf(w, a.first, a.out)
	w.RowStep = a.step
	a.product(c, dst, x, w, bias)
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

// parts returns the pieces of a parameter, or of one expert's slab. If they are not loaded, the
// pass fails.
func (c *Context) parts(p param, expert int) []backend.Part {
	if c.err != nil {
		return nil
	}
	parts := c.weights.Parts(p.Param, expert)
	if len(parts) == 0 {
		if err := c.weights.Err(); err != nil {
			c.fail("%s: %w", p.path, err)
			return nil
		}
		c.fail("%s: its values are not there", p.path)
	}
	return parts
}

// whole returns a matrix that must be stored in one piece.
func (c *Context) whole(p param) (backend.Matrix, bool) {
	parts := c.parts(p, -1)
	if c.err != nil {
		return backend.Matrix{}, false
	}
	return c.onePiece(p, parts)
}

// onePiece returns a matrix that parts have in one piece.
func (c *Context) onePiece(p param, parts []backend.Part) (backend.Matrix, bool) {
	if m := parts[0].Matrix; len(parts) == 1 && m.Rank == 2 && m.OutRows() == p.Shape[0] && m.InCols() == p.Shape[1] {
		return m, true
	}
	c.fail("%s: %d pieces, the first of shape %v, wanted one of %v", p.path, len(parts), parts[0].Shape(), p.Shape)
	return backend.Matrix{}, false
}

// vector returns a one-dimensional parameter, or the elements of a larger one in order. It is zero
// if p is missing.
func (c *Context) vector(p param) tensor.Tensor {
	if p.Param == nil {
		return tensor.Tensor{}
	}
	parts := c.parts(p, -1)
	if c.err != nil {
		return tensor.Tensor{}
	}
	m := parts[0].Matrix
	if t := m.Tensor; len(parts) == 1 && slices.Equal(t.Dims[:t.Rank], p.Shape) {
		if t.Rank == 1 {
			return t
		}
		if !m.Transposed && m.Quant == nil && t.RowStride()*t.Rows() == t.Elements() {
			t.Dims[0], t.Rank, t.Stride = t.Elements(), 1, 0
			return t
		}
	}
	c.fail("%s: %d pieces, the first of shape %v, wanted one of %v", p.path, len(parts), parts[0].Shape(), p.Shape)
	return tensor.Tensor{}
}
