package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// deltaNet is a gated DeltaNet layer.
type deltaNet struct {
	path           string
	spec           *meta.DeltaNetSpec
	act, gate      meta.Activation
	decays         int // decays per token
	qkv, z, b, a   *linear
	q, k, v        *linear // if not fused as qkv
	qkvz, ba       *linear // fused qkv and z, and fused b and a
	aDown, zDown   *linear // applied before a and z; may be nil
	out            *linear
	norm           *norm
	conv           convolution
	aLog, dtBias   param
	keys, values   int // widths
	perKey         int // value heads per key head
	recurrentFirst int // first element of the recurrent state, which follows the convolution's
}

func (c *compiler) deltaNet(n Node, in int) (rule, error) {
	s, err := spec[meta.DeltaNetSpec](n, meta.KindDeltaNet)
	if err != nil {
		return nil, err
	}
	if s.KeyHeads < 1 || s.ValueHeads < 1 || s.ValueHeads%s.KeyHeads != 0 || s.KeyDim < 1 || s.ValueDim < 1 || s.Kernel < 2 {
		return nil, at(n.Path, "%d value heads of %d over %d key heads of %d, convolved over %d tokens", s.ValueHeads, s.ValueDim, s.KeyHeads, s.KeyDim, s.Kernel)
	}
	r := &deltaNet{path: n.Path, spec: s, keys: s.KeyHeads * s.KeyDim, values: s.ValueHeads * s.ValueDim, perKey: s.ValueHeads / s.KeyHeads, act: orSiLU(s.Act), gate: orSiLU(s.GateAct)}
	if r.decays = s.ValueHeads; s.ByChannel {
		r.decays *= s.KeyDim
	}
	if err := c.deltaInputs(n, r, in); err != nil {
		return nil, err
	}
	channels := 2*r.keys + r.values
	if r.conv, err = c.convolution(n, s.Conv, channels, s.Kernel); err != nil {
		return nil, err
	}
	if err := c.forgets(n, r); err != nil {
		return nil, err
	}
	if r.norm, err = c.normNamed(n, "norm", s.Norm, r.values); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, r.values, 0); err != nil {
		return nil, err
	}
	c.program.heads = max(c.program.heads, s.KeyHeads)
	c.keeps(2*s.KeyDim + s.ValueDim + s.KeyDim*s.ValueDim)
	r.recurrentFirst = channels * (s.Kernel - 1)
	return r, c.state(n.Path, s.State, r.recurrentFirst+s.ValueHeads*s.KeyDim*s.ValueDim)
}

// forgets compiles the parameters of the decay.
func (c *compiler) forgets(n Node, r *deltaNet) (err error) {
	s, child := r.spec, n
	if s.Forget != "" {
		if child, err = c.child(n, "parameters of the decay", s.Forget); err != nil {
			return err
		}
	}
	shape := []int{s.ValueHeads}
	if p := child.Module.Param(s.ALog); p != nil && p.Elements() == int64(s.ValueHeads) {
		shape = p.Shape
	}
	if r.aLog, err = c.param(child, s.ALog, shape...); err != nil {
		return err
	}
	r.dtBias, err = c.param(child, s.DTBias, r.decays)
	return err
}

// orSiLU returns act, or SiLU if act is unset.
func orSiLU(act meta.Activation) meta.Activation {
	if act == meta.ActNone {
		return meta.ActSiLU
	}
	return act
}

// deltaInputs compiles the projections of the input.
func (c *compiler) deltaInputs(n Node, r *deltaNet, in int) (err error) {
	s := r.spec
	type part struct {
		to         **linear
		role, name string
		out        int
	}
	parts := []part{{&r.qkv, "queries, keys and values", s.QKV, 2*r.keys + r.values}, {&r.z, "output gate", s.Z, r.values}}
	if s.Q != "" {
		parts = []part{{&r.q, "queries", s.Q, r.keys}, {&r.k, "keys", s.K, r.keys}, {&r.v, "values", s.V, r.values}, parts[1]}
	}
	if s.FusedQKVZ != "" {
		parts = []part{{&r.qkvz, "fused projection", s.FusedQKVZ, 2*r.keys + 2*r.values}}
	}
	if s.FusedBA != "" {
		parts = append(parts, part{&r.ba, "fused gates", s.FusedBA, 2 * s.ValueHeads})
	} else {
		parts = append(parts, part{&r.b, "strength", s.B, s.ValueHeads}, part{&r.a, "decay", s.A, r.decays})
	}
	for _, p := range []part{{&r.zDown, "compression of the output gate", s.ZDown, 0}, {&r.aDown, "compression of the decay", s.ADown, 0}} {
		if p.name != "" {
			if *p.to, err = c.linearNamed(n, p.role, p.name, in, 0); err != nil {
				return err
			}
		}
	}
	for _, p := range parts {
		width := in
		switch {
		case p.to == &r.z && r.zDown != nil:
			width = r.zDown.out
		case p.to == &r.a && r.aDown != nil:
			width = r.aDown.out
		}
		if *p.to, err = c.linearNamed(n, p.role, p.name, width, p.out); err != nil {
			return err
		}
	}
	if r.ba != nil && s.ByChannel {
		return at(n.Path, "decays by channel in one projection with strengths")
	}
	if r.qkvz != nil && r.ba == nil {
		return at(n.Path, "separate gates beside one projection of queries, keys, values and output gates")
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
			backend.DeltaArgs{KeyHeads: s.KeyHeads, ValueHeads: s.ValueHeads, KeyDim: s.KeyDim, ValueDim: s.ValueDim, Rates: s.Rates, Tiled: s.Tiled, Strength: s.Strength,
				ByChannel: s.ByChannel, Floor: s.Floor})
		r.norm.forward(c, y, y)
		c.backend.Gate(p.z, p.z, y, r.gate, 0)
	}
	r.out.forward(c, dst, p.z)
	c.arena.used = mark
}

// deltaProjected holds the operands of the recurrence and the gate of its result.
type deltaProjected struct{ q, k, v, z, b, a tensor.Tensor }

// project computes the operands, after the convolution.
func (r *deltaNet) project(c *Context, x tensor.Tensor) (p deltaProjected) {
	if r.qkvz != nil {
		return r.projectFused(c, x)
	}
	rows, channels := x.Rows(), 2*r.keys+r.values
	all, mixed, z := c.arena.take(rows, channels), c.arena.take(rows, channels), c.arena.take(rows, r.values)
	forA, forZ := r.compressed(c, x)
	together := c.collect()
	if r.q != nil {
		r.q.compute(together, all.Columns(0, r.keys), x, 0)
		r.k.compute(together, all.Columns(r.keys, 2*r.keys), x, 0)
		r.v.compute(together, all.Columns(2*r.keys, channels), x, 0)
	} else {
		r.qkv.compute(together, all, x, 0)
	}
	r.z.compute(together, z, forZ, 0)
	if r.ba != nil {
		gates := c.arena.take(rows, r.ba.out)
		r.ba.compute(together, gates, x, 0)
		c.compute()
		p.b, p.a = r.gates(c, gates)
	} else {
		p.b, p.a = c.arena.take(rows, r.spec.ValueHeads), c.arena.take(rows, r.decays)
		r.b.compute(together, p.b, x, 0)
		r.a.compute(together, p.a, forA, 0)
		c.compute()
	}
	p.z = z
	r.convolve(c, mixed, all, 0)
	p.q, p.k, p.v = mixed.Columns(0, r.keys), mixed.Columns(r.keys, 2*r.keys), mixed.Columns(2*r.keys, channels)
	return p
}

// compressed returns the inputs of the projections a and z.
func (r *deltaNet) compressed(c *Context, x tensor.Tensor) (forA, forZ tensor.Tensor) {
	forA, forZ = x, x
	together := c.collect()
	if r.zDown != nil {
		forZ = c.arena.take(x.Rows(), r.zDown.out)
		r.zDown.compute(together, forZ, x, 0)
	}
	if r.aDown != nil {
		forA = c.arena.take(x.Rows(), r.aDown.out)
		r.aDown.compute(together, forA, x, 0)
	}
	c.compute()
	return forA, forZ
}

// projectFused splits fused projections that are ordered by key head. With one row for each token
// and key head, each operand is a range of columns.
func (r *deltaNet) projectFused(c *Context, x tensor.Tensor) (p deltaProjected) {
	s, rows := r.spec, x.Rows()
	all, gates := c.arena.take(rows, r.qkvz.out), c.arena.take(rows, r.ba.out)
	together := c.collect()
	r.qkvz.compute(together, all, x, 0)
	r.ba.compute(together, gates, x, 0)
	c.compute()
	values := r.perKey * s.ValueDim
	width := 2*s.KeyDim + 2*values
	q, k := r.ofKeys(c, all, width, 0, s.KeyDim), r.ofKeys(c, all, width, s.KeyDim, s.KeyDim)
	v := r.ofKeys(c, all, width, 2*s.KeyDim, values)
	p.z = r.ofKeys(c, all, width, 2*s.KeyDim+values, values)
	p.b, p.a = r.gates(c, gates)
	p.q, p.k, p.v = c.arena.take(rows, r.keys), c.arena.take(rows, r.keys), c.arena.take(rows, r.values)
	r.convolve(c, p.q, q, 0)
	r.convolve(c, p.k, k, r.keys)
	r.convolve(c, p.v, v, 2*r.keys)
	return p
}

// convolve computes dst from x. The channels begin at first.
func (r *deltaNet) convolve(c *Context, dst, x tensor.Tensor, first int) {
	if r.act == meta.ActSiLU {
		r.conv.channels(c, dst, x, r.spec.State, first, meta.ActSiLU)
		return
	}
	r.conv.channels(c, dst, x, r.spec.State, first, meta.ActNone)
	if c.err == nil {
		c.backend.Gate(dst, dst, tensor.Tensor{}, r.act, 0)
	}
}

// gates splits strengths and decays that are ordered by key head.
func (r *deltaNet) gates(c *Context, both tensor.Tensor) (b, a tensor.Tensor) {
	return r.ofKeys(c, both, 2*r.perKey, 0, r.perKey), r.ofKeys(c, both, 2*r.perKey, r.perKey, r.perKey)
}

// ofKeys copies cols columns from first on of each key head, which has width columns in from.
func (r *deltaNet) ofKeys(c *Context, from tensor.Tensor, width, first, cols int) tensor.Tensor {
	return c.ofHeads(from, r.spec.KeyHeads, width, first, cols)
}

// ofHeads copies cols columns from first on of each of the given heads, which have width columns
// in from.
func (c *Context) ofHeads(from tensor.Tensor, heads, width, first, cols int) tensor.Tensor {
	to, n := c.arena.take(from.Rows(), heads*cols), from.Rows()*heads
	if c.err == nil {
		c.copyRows(matrix(to, n, cols), matrix(from, n, width).Columns(first, first+cols))
	}
	return to
}

func (r *deltaNet) scratch(rows int) int {
	channels, heads := 2*r.keys+r.values, r.spec.ValueHeads
	n := floats(rows, r.values) + floats(rows, r.values) + floats(rows, heads) + floats(rows, r.decays) // y, z, b, a
	for _, down := range []*linear{r.aDown, r.zDown} {
		if down != nil {
			n += floats(rows, down.out)
		}
	}
	if r.ba != nil {
		n += floats(rows, r.ba.out)
	}
	if r.qkvz == nil {
		return n + 2*floats(rows, channels)
	}
	return n + floats(rows, r.qkvz.out) + 4*floats(rows, r.keys) + 2*floats(rows, r.values)
}

func (r *deltaNet) cols() int { return r.out.cols() }
