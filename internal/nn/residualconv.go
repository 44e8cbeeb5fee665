package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// residualConv adds a short convolution of each channel, see [meta.ResidualConvSpec].
type residualConv struct {
	conv  convolution
	state int
	width int
}

// residualConv compiles the convolution of a part of n with the given width. It returns nil if
// there is none.
func (c *compiler) residualConv(n Node, s *meta.ResidualConvSpec, width int) (*residualConv, error) {
	if s == nil {
		return nil, nil
	}
	if s.Kernel < 2 {
		return nil, at(n.Path, "a convolution over %d tokens", s.Kernel)
	}
	r := &residualConv{state: s.State, width: width}
	var err error
	if r.conv, err = c.convolution(n, s.Conv, width, s.Kernel); err != nil {
		return nil, err
	}
	return r, c.state(meta.Join(n.Path, s.Conv), s.State, (s.Kernel-1)*width)
}

// apply adds the convolution of x to x. r may be nil.
func (r *residualConv) apply(c *Context, x tensor.Tensor) {
	if r == nil {
		return
	}
	mark := c.arena.used
	y := c.arena.passing(x.Rows(), r.width)
	r.conv.channels(c, y, x, r.state, 0, meta.ActNone)
	c.add(x, y, 1)
	c.arena.used = mark
}

// scratch returns the scratch memory of r, which may be nil.
func (r *residualConv) scratch(rows int) int {
	if r == nil {
		return 0
	}
	return floats(rows, r.width)
}

// blockConvs compiles the convolutions after the branches of a block.
func (c *compiler) blockConvs(n Node, s *meta.BlockSpec, b *block) (err error) {
	if s.AttentionConv == nil && s.MLPConv == nil {
		return nil
	}
	if b.normSums || !twoBranches(s) {
		return at(n.Path, "convolutions behind branches in a block of another form than two branches in sequence")
	}
	if b.attention.conv, err = c.residualConv(n, s.AttentionConv, b.width); err != nil {
		return err
	}
	b.mlp.conv, err = c.residualConv(n, s.MLPConv, b.width)
	return err
}
