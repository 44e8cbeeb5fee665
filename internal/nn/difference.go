package nn

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// difference is the part of differential attention that subtracts heads, see
// [meta.DifferenceSpec].
type difference struct {
	path    string
	numbers [4]param // vectors of the subtraction's factor: q1, k1, q2, k2
	init    float32
	norm    *norm
	heads   int // key and value heads
	dim     int // size of a value head
}

// difference compiles the vectors that the spec of a names. It returns nil if there is none.
func (c *compiler) difference(n Node, a *attention) (d *difference, err error) {
	s := a.spec
	if s.Difference == nil {
		return nil, nil
	}
	if s.KVHeads%2 != 0 || s.Gated || s.Shared || s.Blocks != nil || s.Gate != "" || s.Sinks != "" {
		return nil, at(n.Path, "heads that are subtracted, with %d heads of keys and values, gates or sinks", s.KVHeads)
	}
	d = &difference{path: n.Path, init: s.Difference.Init, heads: s.KVHeads, dim: s.ValueDim}
	for i, name := range []string{s.Difference.Q1, s.Difference.K1, s.Difference.Q2, s.Difference.K2} {
		if d.numbers[i], err = c.param(n, name, s.HeadDim); err != nil {
			return nil, err
		}
	}
	d.norm, err = c.normNamed(n, "norm of the differences", s.Difference.Norm, s.Heads*s.ValueDim)
	return d, err
}

// pairs returns the values of each head: two adjacent heads of v, one from each half.
func (d *difference) pairs(c *Context, v tensor.Tensor) tensor.Tensor {
	pairs, half := c.arena.take(v.Rows(), 2*v.Cols()), d.heads/2
	if c.err != nil {
		return pairs
	}
	for i := range 2 * d.heads {
		from := (i%2*half + i/2%half) * d.dim
		c.copyRows(pairs.Columns(i*d.dim, (i+1)*d.dim), v.Columns(from, from+d.dim))
	}
	return pairs
}

// subtract sets dst to the results of the first half of the heads minus the scaled results of the
// second half.
func (d *difference) subtract(c *Context, dst, y tensor.Tensor) {
	factor, dots := d.factor(c)
	if c.err != nil {
		return
	}
	c.copyRows(dst, y.Columns(0, dst.Cols()))
	if other := y.Columns(dst.Cols(), y.Cols()); c.recording() {
		c.arena.recorder.AddLearned(dst, other, -factor, d.learned(c, dots)...)
	} else {
		c.backend.Add(dst, other, -factor)
	}
	if d.norm != nil {
		d.norm.forward(c, dst, dst)
	}
	c.scale(dst, 1-d.init)
}

// learned returns the parameters that determine the negated factor, for its gradient.
func (d *difference) learned(c *Context, dots [2]float32) []backend.Learned {
	v, n := c.hostVectors(d.numbers[:]...), d.numbers[0].Shape[0]
	all := make([]backend.Learned, len(d.numbers))
	for i := range all {
		by := -float32(math.Exp(float64(dots[i/2]))) * float32(1-i/2*2)
		other := v[(i^1)*n:][:n]
		all[i] = backend.Learned{Weight: c.vector(d.numbers[i]), Slopes: make([]float32, n)}
		for j, x := range other {
			all[i].Slopes[j] = by * x
		}
	}
	return all
}

// factor returns the factor of the second half, and the dot products of its vectors.
func (d *difference) factor(c *Context) (factor float32, dots [2]float32) {
	v, n := c.hostVectors(d.numbers[:]...), d.numbers[0].Shape[0]
	if c.err != nil {
		return 0, dots
	}
	for i := range dots {
		q, k := v[2*i*n:][:n], v[(2*i+1)*n:][:n]
		for j := range q {
			dots[i] += float32(k[j] * q[j])
		}
	}
	return float32(math.Exp(float64(dots[0]))) - float32(math.Exp(float64(dots[1]))) + d.init, dots
}

// scratch returns the scratch memory of d, which may be nil.
func (d *difference) scratch(rows int, s *meta.AttentionSpec) int {
	if d == nil {
		return 0
	}
	return floats(rows, 2*s.KVHeads*s.ValueDim) + floats(rows, 2*s.Heads*s.ValueDim)
}
