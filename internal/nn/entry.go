package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// entry is what a block does with the residual stream before its branches, see [meta.EntrySpec].
type entry struct {
	norm  *norm // nil for none
	scale float32
}

// entry returns nil for none.
func (c *compiler) entry(n Node, s *meta.BlockSpec, b *block) (*entry, error) {
	if s.Entry == nil {
		return nil, nil
	}
	if b.parallel || !b.plain() || s.Attention == "" || s.MLP == "" || s.AltUp != nil || b.beside != nil {
		return nil, at(n.Path, "an entry of a block of another form than two branches in sequence")
	}
	e := &entry{scale: orOne(s.Entry.Scale)}
	var err error
	e.norm, err = c.normNamed(n, "norm at the entry", s.Entry.Norm, b.width)
	return e, err
}

// apply changes x. e may be nil.
func (e *entry) apply(c *Context, x tensor.Tensor) {
	if e == nil {
		return
	}
	c.scale(x, e.scale)
	if e.norm != nil && c.err == nil {
		e.norm.forward(c, x, x)
	}
}
