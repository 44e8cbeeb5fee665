package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// logPosition is a table whose only column of cosines holds the logarithms of positions counted
// from 1.
var logPosition = &meta.RopeSpec{Type: meta.RopeNone, Dim: 2, Growth: 1, GrowthEvery: 1, GrowthAlone: true}

// A headScale multiplies the queries of each head by a linear function of the logarithm of their
// position. See [meta.MLASpec].HeadScale.
type headScale struct {
	scale, bias param
	heads, dim  int
	table       int
	ones        []float32
}

// headScale compiles the child that a spec names. It returns nil if there is none.
func (c *compiler) headScale(n Node, name string, heads, dim int) (*headScale, error) {
	if name == "" {
		return nil, nil
	}
	child, err := c.child(n, "factors of the heads", name)
	if err != nil {
		return nil, err
	}
	s := &headScale{heads: heads, dim: dim, ones: slices.Repeat([]float32{1}, dim)}
	c.spreads(heads, dim)
	c.spreads(1, heads)
	if s.scale, err = c.param(child, "scale", heads); err != nil {
		return nil, err
	}
	if s.bias, err = c.param(child, "bias", heads); err != nil {
		return nil, err
	}
	s.table, err = c.rope(child.Path, logPosition, logPosition.Dim)
	return s, err
}

// apply multiplies the heads of q in place. s may be nil.
func (s *headScale) apply(c *Context, q tensor.Tensor) {
	if s == nil {
		return
	}
	mark, rows := c.arena.used, q.Rows()
	wide, byHead := c.arena.take(rows, s.heads*s.dim), c.arena.take(rows, s.heads)
	slope, bias := c.vector(s.scale), c.vector(s.bias)
	if c.err == nil {
		slope.Rank, slope.Stride, slope.Dims = 2, 0, [tensor.MaxRank]int{s.heads, 1}
		c.backend.Linear(byHead, c.ropes[s.table].cos, backend.Matrix{Tensor: slope}, bias)
		c.spread(wide, byHead, s.ones)
		c.backend.Gate(q, q, wide, meta.ActNone, 0)
	}
	c.arena.used = mark
}

// scratch returns the scratch memory of s, which may be nil.
func (s *headScale) scratch(rows int) int {
	if s == nil {
		return 0
	}
	return floats(rows, s.heads*s.dim) + floats(rows, s.heads)
}
