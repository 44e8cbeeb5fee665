package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// keyMix mixes queries and keys by two convolutions, see [meta.KeyMixSpec].
type keyMix struct {
	spec                 *meta.AttentionSpec
	depth                convolution
	grouped              headMap
	depthBias, groupBias param // of the convolutions
	vBias                param // of vBefore, which is added behind the shift
	vBefore              *linear
	shift, vShift        *shift
	qw, kw, vw           int // widths of queries, keys and values
}

// keyMix compiles the mixture of queries and keys of a, or returns nil for none.
func (c *compiler) keyMix(n Node, a *attention, in int) (*keyMix, error) {
	s := a.spec.Mix
	if s == nil {
		return nil, nil
	}
	if a.fused != nil || a.spec.Gated || a.spec.Shared || a.spec.KeysToo || a.kConv != nil || a.vConv != nil || s.Kernel < 2 || a.spec.ValueDim != a.spec.HeadDim {
		return nil, at(n.Path, "a mixture of queries and keys over %d tokens with fused, gated, shared or convolved projections", s.Kernel)
	}
	c.together("convolutions that mix queries and keys")
	r, width := &keyMix{spec: a.spec, qw: a.qw, kw: a.kw, vw: a.vw}, a.qw+a.kw
	var err error
	if r.vBefore, err = c.linearNamed(n, "values of the token before", s.VBefore, in, a.vw/2); err != nil {
		return nil, err
	}
	c.usedNext(r.vBefore, a.gate.of(), a.out)
	r.vBias, r.vBefore.bias = r.vBefore.bias, param{}
	if r.depth, err = c.convolution(n, s.Depthwise, width, s.Kernel); err != nil {
		return nil, err
	}
	r.depthBias, r.depth.bias = r.depth.bias, param{}
	if err = c.groupedConv(n, r, width); err != nil {
		return nil, err
	}
	c.spreads(width, 2)
	held := (s.Kernel - 1) * width
	r.shift, r.vShift = c.shift(n, s.State, width), c.shift(n, s.State, a.vw/2)
	r.shift.first, r.vShift.first = held, held+width
	return r, c.state(n.Path, s.State, held+width+a.vw/2)
}

// groupedConv finds the convolution within heads. It is a map of the channels of two tokens in turn.
func (c *compiler) groupedConv(n Node, r *keyMix, width int) error {
	child, err := c.child(n, "convolution within heads", r.spec.Mix.Grouped)
	if err != nil {
		return err
	}
	dim := r.spec.HeadDim
	m := &r.grouped
	if m.weight, err = c.param(child, "weight", width, dim, 2); err != nil {
		return err
	}
	m.of = &linear{path: child.Path, weight: m.weight, in: 2 * dim, out: dim}
	c.multiplies(m.of)
	r.groupBias, err = c.optional(child, "bias", width)
	return err
}

// project computes queries, keys and values of the operand x of a.
func (r *keyMix) project(c *Context, a *attention, x tensor.Tensor) (q, k, v tensor.Tensor) {
	rows, width, half := x.Rows(), r.qw+r.kw, r.vw/2
	mixed, v := c.arena.take(rows, width), c.arena.take(rows, r.vw)
	mark := c.arena.used
	plain, before := c.arena.take(rows, width), c.arena.take(rows, half)
	together := c.collect()
	a.q.compute(together, plain.Columns(0, r.qw), x, 0)
	a.k.compute(together, plain.Columns(r.qw, width), x, 0)
	a.v.compute(together, v.Columns(0, half), x, 0)
	r.vBefore.compute(together, before, x, 0)
	c.compute()
	r.vShift.before(c, v.Columns(half, r.vw), before)
	c.addVector(v.Columns(half, r.vw), r.vBias)
	r.convolve(c, mixed, plain)
	r.addMeans(c, mixed, plain)
	c.arena.used = mark
	return mixed.Columns(0, r.qw), mixed.Columns(r.qw, width), v
}

// convolve sets dst to both convolutions of x.
func (r *keyMix) convolve(c *Context, dst, x tensor.Tensor) {
	mark, rows, width, dim := c.arena.used, x.Rows(), x.Cols(), r.spec.HeadDim
	now, before := c.arena.take(rows, width), c.arena.take(rows, width)
	r.depth.channels(c, now, x, r.spec.Mix.State, 0, meta.ActNone)
	r.shift.before(c, before, now)
	c.addVector(now, r.depthBias) // behind the shift, as it is what tokens before the first have
	c.addVector(before, r.depthBias)
	both, other := c.arena.take(rows, 2*width), c.arena.take(rows, 2*width)
	if c.err == nil {
		c.spread(both, before, []float32{1, 0})
		c.spread(other, now, []float32{0, 1})
		c.add(both, other, 1)
	}
	together := c.collect()
	for h := range width / dim {
		r.grouped.forward(together, h, dst.Columns(h*dim, (h+1)*dim), both.Columns(2*h*dim, 2*(h+1)*dim))
	}
	c.compute()
	c.addVector(dst, r.groupBias)
	c.arena.used = mark
}

// addMeans adds the means of queries and keys.
func (r *keyMix) addMeans(c *Context, mixed, plain tensor.Tensor) {
	dim, group := r.spec.HeadDim, r.spec.Heads/r.spec.KVHeads
	mark := c.arena.used
	means := c.arena.take(plain.Rows(), r.qw)
	if c.err == nil {
		c.copyRows(means, plain.Columns(0, r.qw))
	}
	for h := range r.spec.Heads {
		key := r.qw + h/group*dim
		mean := means.Columns(h*dim, (h+1)*dim)
		c.add(mean, plain.Columns(key, key+dim), 1)
		c.scale(mean, 0.5)
		c.add(mixed.Columns(key, key+dim), mean, 1/float32(group))
	}
	c.add(mixed.Columns(0, r.qw), means, 1)
	c.arena.used = mark
}

// scratch is the memory of r, which may be nil.
func (r *keyMix) scratch(rows int) int {
	if r == nil {
		return 0
	}
	width := r.qw + r.kw
	return 2*floats(rows, width) + floats(rows, r.vw) + floats(rows, r.vw/2) + 3*floats(rows, width) + 2*floats(rows, 2*width)
}
