package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// expansion is the projection of latent attention from compressed vectors to the heads' keys and
// values. It is one matrix, or two, of which the key matrix is transposed head by head.
type expansion struct {
	both *linear // nil if it is stored as two matrices
	k, v *linear
}

// expansion compiles the projection of a and checks its shape.
func (c *compiler) expansion(n Node, a *latent) (err error) {
	m, s := a.spec.MLA, a.spec
	if m.KVUp != "" {
		if a.up.both, err = c.expands(n, m.KVUp, a.rank, s.Heads*(a.nope+s.ValueDim)); err == nil {
			c.inRowGroups(a.up.both, a.nope+s.ValueDim, a.nope)
		}
		return err
	}
	if a.up.k, err = c.expands(n, m.KeyUp, a.nope, s.Heads*a.rank); err == nil {
		a.up.v, err = c.expands(n, m.ValueUp, a.rank, s.Heads*s.ValueDim)
	}
	return err
}

func (c *compiler) expands(n Node, name string, in, out int) (*linear, error) {
	l, err := c.linearNamed(n, "expansion", name, in, out)
	if err != nil {
		return nil, err
	}
	l.partial, l.magnitudes = true, true
	if l.bias.Param != nil || l.transposed {
		return nil, at(l.path, "an expansion of latent attention that has a bias or is transposed")
	}
	return l, nil
}

// keys calls f with the matrices that project the queries of head h to channels [begin, end) of
// the compressed vectors, for all heads and channels. Matrices may come in bands. It returns a
// matrix that comes as a whole, for values.
func (e *expansion) keys(c scope, a *latent, f func(h, begin, end int, w backend.Matrix)) (all backend.Matrix) {
	if e.both == nil {
		e.k.groups(c, a.rank, f)
		return all
	}
	parts := c.parts(e.both.weight, -1)
	if c.err != nil {
		return all
	}
	if parts[0].OutRows() == e.both.out {
		all, _ = c.onePiece(e.both.weight, parts)
		parts = nil
	}
	for h := 0; all.Rank != 0 && h < a.spec.Heads && c.err == nil; h++ {
		first := h * (a.nope + a.spec.ValueDim)
		w := rowsOf(all, first, first+a.nope)
		w.Transposed = !w.Transposed
		f(h, 0, a.rank, w)
	}
	if len(parts) > 0 {
		e.half(c, a.spec.Heads, a.nope, parts, func(h int, w backend.Matrix) {
			w.Transposed = !w.Transposed
			f(h, 0, a.rank, w)
		})
	}
	return all
}

// values calls f with the matrices that project the attention of head h to channels [begin, end)
// of its values, for all heads and channels. all is the result of keys.
func (e *expansion) values(c scope, a *latent, all backend.Matrix, f func(h, begin, end int, w backend.Matrix)) {
	size := a.spec.ValueDim
	switch {
	case e.both == nil:
		e.v.groups(c, size, f)
	case all.Rank == 0:
		w := boundLinear{linear: e.both}
		e.half(c, a.spec.Heads, size, w.nextBand(c), func(h int, w backend.Matrix) { f(h, 0, size, w) })
	default:
		for h := range a.spec.Heads {
			first := h*(a.nope+size) + a.nope
			f(h, 0, size, rowsOf(all, first, first+size))
		}
	}
}

// half calls f with the rows of each head. Bands have rows rows of each head; parts is the first
// band.
func (e *expansion) half(c scope, heads, rows int, parts []backend.Part, f func(h int, w backend.Matrix)) {
	w := boundLinear{linear: e.both}
	for h := 0; c.err == nil; parts = w.nextBand(c) {
		if len(parts) != 1 || parts[0].Rank != 2 || parts[0].InCols() != e.both.in || parts[0].OutRows() < rows || parts[0].OutRows()%rows != 0 || h+parts[0].OutRows()/rows > heads {
			c.fail("%s: got a band of %d pieces behind head %d of %d, want one with %d rows of each head", e.both.weight.path, len(parts), h, heads, rows)
			return
		}
		for i := range parts[0].OutRows() / rows {
			f(h, rowsOf(parts[0].Matrix, i*rows, (i+1)*rows))
			h++
		}
		if h == heads {
			return
		}
	}
}

// adaptQueries and adaptValues add the adapters of the expansion head by head, in the way the
// expansion itself is applied. Adapters do not support an expansion that is stored as two
// matrices.
func (a *latent) adaptQueries(c *Context, absorbed, q tensor.Tensor) {
	if len(c.lowRank.groups) == 0 || a.up.both == nil {
		return
	}
	if c.in.Drops != nil && c.adapts(a.up.both) {
		c.fail("%s: latent attention takes this map apart: its adapter cannot drop inputs", a.up.both.path)
		return
	}
	dim, width := a.spec.HeadDim, a.rank+a.rotated
	for h := range a.spec.Heads {
		c.adaptTurned(a.up.both.number, absorbed.Columns(h*width, h*width+a.rank), q.Columns(h*dim, h*dim+a.nope), h*(a.nope+a.spec.ValueDim))
	}
}

func (a *latent) adaptValues(c *Context, values, y tensor.Tensor) {
	if len(c.lowRank.groups) == 0 || a.up.both == nil {
		return
	}
	size := a.spec.ValueDim
	for h := range a.spec.Heads {
		c.adapt(a.up.both.number, values.Columns(h*size, (h+1)*size), y.Columns(h*a.rank, (h+1)*a.rank), h*(a.nope+size)+a.nope, 1)
	}
}

// magnifyQueries and magnifyValues apply the DoRA magnitudes of the expansion: to its inputs
// where it is transposed, otherwise to its results.
func (a *latent) magnifyQueries(c *Context, q tensor.Tensor) {
	if a.up.both != nil {
		c.scaleHeads(a.up.both, q, byHead{heads: a.spec.Heads, width: a.spec.HeadDim, cols: a.nope, step: a.nope + a.spec.ValueDim})
	}
}

func (a *latent) magnifyValues(c *Context, values tensor.Tensor) {
	if size := a.spec.ValueDim; a.up.both != nil {
		c.scaleHeads(a.up.both, values, byHead{heads: a.spec.Heads, width: size, cols: size, step: a.nope + size, first: a.nope})
	}
}
