package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// lightning is lightning attention: a state-space model with step size 1, whose weights are the
// queries and keys.
type lightning struct {
	path           string
	spec           *meta.LightningSpec
	qkv, gate, out *linear
	norm           *norm
	inner          int       // width of all heads
	rates, zeros   []float32 // per head: the negative logarithm of its decay, and 0
}

func (c *compiler) lightning(n Node, in int) (rule, error) {
	s, err := spec[meta.LightningSpec](n, meta.KindLightning)
	if err != nil {
		return nil, err
	}
	if s.Heads < 1 || s.HeadDim < 1 || len(s.Rates) != s.Heads {
		return nil, at(n.Path, "%d heads of %d with %d rates", s.Heads, s.HeadDim, len(s.Rates))
	}
	r := &lightning{path: n.Path, spec: s, inner: s.Heads * s.HeadDim, rates: slices.Clone(s.Rates), zeros: make([]float32, s.Heads)}
	for i := range r.rates {
		r.rates[i] = -r.rates[i]
	}
	if r.qkv, err = c.linearNamed(n, "queries, keys and values", s.QKV, in, 3*r.inner); err != nil {
		return nil, err
	}
	if r.gate, err = c.linearNamed(n, "output gate", s.Gate, in, r.inner); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, r.inner, 0); err != nil {
		return nil, err
	}
	if r.norm, err = c.normNamed(n, "norm", s.Norm, r.inner); err != nil {
		return nil, err
	}
	c.together("lightning attention")
	c.program.heads, c.program.zeros = max(c.program.heads, s.Heads), max(c.program.zeros, s.Heads)
	c.keeps(2*s.HeadDim + s.HeadDim + s.HeadDim*s.HeadDim)
	return r, c.state(n.Path, s.State, r.inner*s.HeadDim)
}

func (r *lightning) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	all, gate := c.arena.take(rows, 3*r.inner), c.arena.take(rows, r.inner)
	together := c.collect()
	r.qkv.compute(together, all, x, 0)
	r.gate.compute(together, gate, x, 0)
	c.compute()
	if c.err == nil && s.Act != meta.ActNone {
		c.backend.Gate(all, all, tensor.Tensor{}, s.Act, 0)
	}
	q, k, v := c.ofHeads(all, s.Heads, 3*s.HeadDim, 0, s.HeadDim), c.ofHeads(all, s.Heads, 3*s.HeadDim, s.HeadDim, s.HeadDim), c.ofHeads(all, s.Heads, 3*s.HeadDim, 2*s.HeadDim, s.HeadDim)
	steps, y := c.arena.take(rows, s.Heads), c.arena.take(rows, r.inner)
	if op := c.recurrent(r.path); op != nil {
		c.backend.Gather(steps, matrix(c.zero, 1, s.Heads), c.nothing[:rows])
		none := tensor.Floats(r.zeros, s.Heads)
		op.StateSpace(y, backend.StateSpaceInputs{X: v, B: k, C: q, DT: steps, ALog: tensor.Floats(r.rates, s.Heads), DTBias: none, D: none}, c.states(s.State, 0),
			backend.StateSpaceArgs{Heads: s.Heads, Groups: s.Heads, HeadDim: s.HeadDim, StateDim: s.HeadDim, StepMin: 1, StepMax: 1, Rates: true})
		r.norm.forward(c, y, y)
		c.backend.Gate(gate, gate, y, meta.ActSigmoid, 0)
	}
	r.out.forward(c, dst, gate)
	c.arena.used = mark
}

func (r *lightning) scratch(rows int) int {
	return floats(rows, 3*r.inner) + 5*floats(rows, r.inner) + floats(rows, r.spec.Heads)
}

func (r *lightning) cols() int { return r.out.cols() }
