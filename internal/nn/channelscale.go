package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// channelScale multiplies channels by learned factors, see [meta.ChannelScaleSpec].
type channelScale struct {
	of     param
	factor float32
	form   meta.ScaleForm
	width  int
}

// channelScale compiles the factors of rows of the given width, or returns nil for none.
func (c *compiler) channelScale(n Node, s *meta.ChannelScaleSpec, width int) (r *channelScale, err error) {
	if s == nil {
		return nil, nil
	}
	c.together("learned factors of channels")
	r = &channelScale{factor: s.Factor, form: s.Form, width: width}
	r.of, err = c.param(n, s.Param, width)
	return r, err
}

// apply multiplies the rows of x. r may be nil.
func (r *channelScale) apply(c *Context, x tensor.Tensor) {
	if r == nil || c.err != nil {
		return
	}
	mark := c.arena.used
	y := c.arena.take(x.Rows(), r.width)
	c.repeatVector(y, r.of)
	c.scale(y, r.factor)
	if r.form != meta.ScalePlain && c.err == nil {
		r.shape(c, y)
	}
	if c.err == nil {
		c.backend.Gate(x, x, y, meta.ActNone, 0)
	}
	c.arena.used = mark
}

// shape replaces factors y by their squares or absolute values.
func (r *channelScale) shape(c *Context, y tensor.Tensor) {
	other := c.arena.take(y.Rows(), r.width)
	if r.form == meta.ScaleSquare {
		c.copyRows(other, y)
		c.backend.Gate(y, y, other, meta.ActNone, 0)
		return
	}
	c.scaled(other, y, -1) // |y| = max(0, y) + max(0, -y)
	for _, half := range []tensor.Tensor{y, other} {
		c.backend.Gate(half, half, tensor.Tensor{}, meta.ActReLU, 0)
	}
	c.add(y, other, 1)
}

// blockRates compiles the rates of a block's branches.
func (c *compiler) blockRates(n Node, s *meta.BlockSpec, b *block) (err error) {
	if s.AttentionRate == nil && s.MLPRate == nil {
		return nil
	}
	if !twoBranches(s) || s.NormSums || scalesSums(s) || b.embedded != nil {
		return at(n.Path, "rates of branches in a block of another form than two branches in sequence")
	}
	if b.attention.rate, err = c.channelScale(n, s.AttentionRate, b.width); err != nil {
		return err
	}
	b.mlp.rate, err = c.channelScale(n, s.MLPRate, b.width)
	return err
}

// toward changes y to r·(y - x), which added to x moves x toward y. r may be nil.
func (r *channelScale) toward(c *Context, x, y tensor.Tensor) {
	if r != nil {
		c.add(y, x, -1)
		r.apply(c, y)
	}
}

// scratch returns the scratch memory of r, which may be nil.
func (r *channelScale) scratch(rows int) int {
	switch {
	case r == nil:
		return 0
	case r.form == meta.ScalePlain:
		return floats(rows, r.width)
	}
	return 2 * floats(rows, r.width)
}
