package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// entry changes the residual stream of a block before its branches, see [meta.EntrySpec].
type entry struct {
	norm  *norm // nil if there is none
	scale float32
}

// entry compiles the entry of a block. It returns nil if there is none.
func (c *compiler) entry(n Node, s *meta.BlockSpec, b *block) (*entry, error) {
	if s.Entry == nil {
		return nil, nil
	}
	if !twoBranches(s) || b.embedded != nil {
		return nil, at(n.Path, "an entry of a block of another form than two branches in sequence")
	}
	e := &entry{scale: orOne(s.Entry.Scale)}
	var err error
	e.norm, err = c.normNamed(n, "norm at the entry", s.Entry.Norm, b.width)
	return e, err
}

// apply changes x in place. e may be nil.
func (e *entry) apply(c *Context, x tensor.Tensor) {
	if e == nil {
		return
	}
	c.scale(x, e.scale)
	if e.norm != nil && c.err == nil {
		e.norm.forward(c, x, x)
	}
}
