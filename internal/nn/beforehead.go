package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// beforeHead is the layer before a head, see [meta.BeforeHeadSpec].
type beforeHead struct {
	dense *linear
	act   meta.Activation
	norm  *norm
}

// beforeHead compiles the layer before a head and appends its nodes. It returns nil if there is
// none.
func (c *compiler) beforeHead(n Node, s *meta.BeforeHeadSpec, width int, nodes *[]Node) (*beforeHead, error) {
	if s == nil {
		return nil, nil
	}
	b := &beforeHead{act: s.Act}
	var err error
	if b.dense, err = c.linearNamed(n, "map in front of the head", s.Dense, width, width); err != nil {
		return nil, err
	}
	if b.norm, err = c.normNamed(n, "norm in front of the head", s.Norm, width); err != nil {
		return nil, err
	}
	*nodes = append(*nodes, root(n, s.Dense), root(n, s.Norm))
	return b, nil
}

// apply returns the input of the head for x, allocated from the arena. b may be nil.
func (b *beforeHead) apply(c scope, x tensor.Tensor) tensor.Tensor {
	if b == nil || c.err != nil {
		return x
	}
	y := c.arena.take(x.Rows(), x.Cols())
	b.dense.compute(c, y, x, 0)
	if c.err == nil {
		c.activate(y, y, tensor.Tensor{}, gating{act: b.act})
	}
	b.norm.compute(c, y, y)
	return y
}
