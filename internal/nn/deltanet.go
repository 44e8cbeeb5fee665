package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// deltaNet is a gated delta net.
type deltaNet struct {
	path           string
	spec           *meta.DeltaNetSpec
	qkv, z, b, a   *linear // or the fused ones
	qkvz, ba       *linear
	out            *linear
	norm           *norm
	conv           convolution
	aLog, dtBias   param
	keys, values   int // widths
	perKey         int // value heads of a key head
	recurrentFirst int // first element of the recurrent state; the convolution's is before it
}

func (c *compiler) deltaNet(n Node, in int) (rule, error) {
	s, err := spec[meta.DeltaNetSpec](n, meta.KindDeltaNet)
	if err != nil {
		return nil, err
	}
	if s.KeyHeads < 1 || s.ValueHeads < 1 || s.ValueHeads%s.KeyHeads != 0 || s.KeyDim < 1 || s.ValueDim < 1 || s.Kernel < 2 {
		return nil, at(n.Path, "%d value heads of %d over %d key heads of %d, convolved over %d tokens", s.ValueHeads, s.ValueDim, s.KeyHeads, s.KeyDim, s.Kernel)
	}
	r := &deltaNet{path: n.Path, spec: s, keys: s.KeyHeads * s.KeyDim, values: s.ValueHeads * s.ValueDim, perKey: s.ValueHeads / s.KeyHeads}
	if err := c.deltaInputs(n, r, in); err != nil {
		return nil, err
	}
	channels := 2*r.keys + r.values
	if r.conv, err = c.convolution(n, s.Conv, channels, s.Kernel); err != nil {
		return nil, err
	}
	if r.aLog, err = c.param(n, s.ALog, s.ValueHeads); err != nil {
		return nil, err
	}
	if r.dtBias, err = c.param(n, s.DTBias, s.ValueHeads); err != nil {
		return nil, err
	}
	if r.norm, err = c.normNamed(n, "norm", s.Norm, r.values); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, r.values, 0); err != nil {
		return nil, err
	}
	c.program.heads = max(c.program.heads, s.KeyHeads)
	r.recurrentFirst = channels * (s.Kernel - 1)
	return r, c.state(n.Path, s.State, r.recurrentFirst+s.ValueHeads*s.KeyDim*s.ValueDim)
}

// deltaInputs compiles the projections of the input.
func (c *compiler) deltaInputs(n Node, r *deltaNet, in int) (err error) {
	s := r.spec
	if s.FusedQKVZ != "" {
		if r.qkvz, err = c.linearNamed(n, "fused projection", s.FusedQKVZ, in, 2*r.keys+2*r.values); err != nil {
			return err
		}
		r.ba, err = c.linearNamed(n, "fused gates", s.FusedBA, in, 2*s.ValueHeads)
		return err
	}
	for _, p := range [...]struct {
		to         **linear
		role, name string
		out        int
	}{{&r.qkv, "queries, keys and values", s.QKV, 2*r.keys + r.values}, {&r.z, "output gate", s.Z, r.values},
		{&r.b, "strength", s.B, s.ValueHeads}, {&r.a, "decay", s.A, s.ValueHeads}} {
		if *p.to, err = c.linearNamed(n, p.role, p.name, in, p.out); err != nil {
			return err
		}
	}
	return nil
}

func (r *deltaNet) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	p := r.project(c, x)
	y := c.arena.take(rows, r.values)
	aLog, dtBias := c.vector(r.aLog), c.vector(r.dtBias)
	if op := c.recurrent(r.path); op != nil {
		op.DeltaRule(y, backend.DeltaInputs{Q: p.q, K: p.k, V: p.v, A: p.a, B: p.b, ALog: aLog, DTBias: dtBias},
			c.states(s.State, r.recurrentFirst),
			backend.DeltaArgs{KeyHeads: s.KeyHeads, ValueHeads: s.ValueHeads, KeyDim: s.KeyDim, ValueDim: s.ValueDim})
		r.norm.forward(c, y, y)
		c.backend.Gate(p.z, p.z, y, meta.ActSiLU, 0)
	}
	r.out.forward(c, dst, p.z)
	c.arena.used = mark
}

// deltaProjected are the operands of the recurrence and the gate of its result.
type deltaProjected struct{ q, k, v, z, b, a tensor.Tensor }

// project computes the operands, after the convolution.
func (r *deltaNet) project(c *Context, x tensor.Tensor) (p deltaProjected) {
	if r.qkvz != nil {
		return r.projectFused(c, x)
	}
	rows, channels := x.Rows(), 2*r.keys+r.values
	all, mixed := c.arena.take(rows, channels), c.arena.take(rows, channels)
	p.z, p.b, p.a = c.arena.take(rows, r.values), c.arena.take(rows, r.spec.ValueHeads), c.arena.take(rows, r.spec.ValueHeads)
	together := c.collect()
	r.qkv.compute(together, all, x, 0)
	r.z.compute(together, p.z, x, 0)
	r.b.compute(together, p.b, x, 0)
	r.a.compute(together, p.a, x, 0)
	c.compute()
	r.conv.channels(c, mixed, all, r.spec.State, 0, meta.ActSiLU)
	p.q, p.k, p.v = mixed.Columns(0, r.keys), mixed.Columns(r.keys, 2*r.keys), mixed.Columns(2*r.keys, channels)
	return p
}

// projectFused sorts projections that are laid out by key head. Seen as one row for each token and key
// head, each operand is a range of columns.
func (r *deltaNet) projectFused(c *Context, x tensor.Tensor) (p deltaProjected) {
	s, rows := r.spec, x.Rows()
	all, gates := c.arena.take(rows, r.qkvz.out), c.arena.take(rows, r.ba.out)
	together := c.collect()
	r.qkvz.compute(together, all, x, 0)
	r.ba.compute(together, gates, x, 0)
	c.compute()
	n, values := rows*s.KeyHeads, r.perKey*s.ValueDim
	part := func(from tensor.Tensor, width, first, cols int) tensor.Tensor {
		to := c.arena.take(rows, s.KeyHeads*cols)
		if c.err == nil {
			c.copyRows(matrix(to, n, cols), matrix(from, n, width).Columns(first, first+cols))
		}
		return to
	}
	width := 2*s.KeyDim + 2*values
	q, k := part(all, width, 0, s.KeyDim), part(all, width, s.KeyDim, s.KeyDim)
	v := part(all, width, 2*s.KeyDim, values)
	p.z = part(all, width, 2*s.KeyDim+values, values)
	p.b, p.a = part(gates, 2*r.perKey, 0, r.perKey), part(gates, 2*r.perKey, r.perKey, r.perKey)
	p.q, p.k, p.v = c.arena.take(rows, r.keys), c.arena.take(rows, r.keys), c.arena.take(rows, r.values)
	r.conv.channels(c, p.q, q, s.State, 0, meta.ActSiLU)
	r.conv.channels(c, p.k, k, s.State, r.keys, meta.ActSiLU)
	r.conv.channels(c, p.v, v, s.State, 2*r.keys, meta.ActSiLU)
	return p
}

func (r *deltaNet) scratch(rows int) int {
	channels, heads := 2*r.keys+r.values, r.spec.ValueHeads
	n := floats(rows, r.values) + floats(rows, r.values) + 2*floats(rows, heads) // y, z, b, a
	if r.qkvz == nil {
		return n + 2*floats(rows, channels)
	}
	return n + floats(rows, r.qkvz.out) + floats(rows, r.ba.out) + 4*floats(rows, r.keys) + 2*floats(rows, r.values)
}

func (r *deltaNet) cols() int { return r.out.cols() }
