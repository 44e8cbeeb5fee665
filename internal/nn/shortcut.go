package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// shortcut follows the two branches of a block with two more branches. It also adds the result of
// a rule, whose input is that of the first MLP, to their sum.
type shortcut struct {
	rule           rule
	attention, mlp branch
}

func (c *compiler) shortcut(n Node, s *meta.BlockSpec, b *block) (x *shortcut, err error) {
	t := s.Second
	if s.Shortcut == "" || t == nil || b.mlp.pre == nil || b.mlp.post != nil || b.mlp.added != nil || b.mlp.out != 1 || b.parallel || b.normSums || scalesSums(s) ||
		b.streams != nil || b.altUp != nil || s.Experts != nil || s.Input != nil || s.Scalar != "" {
		return nil, at(n.Path, "a shortcut in a block of another form than four branches behind norms")
	}
	x = &shortcut{}
	if x.rule, err = c.branchRule(n, "shortcut", s.Shortcut, b.width); err != nil {
		return nil, err
	}
	if x.attention, err = c.branch(n, "attention", [3]string{t.AttentionNorm, t.Attention}, "", b.width); err != nil {
		return nil, err
	}
	x.mlp, err = c.branch(n, "mlp", [3]string{t.MLPNorm, t.MLP}, "", b.width)
	return x, err
}

// through computes x = block(x).
func (s *shortcut) through(c *Context, b *block, x tensor.Tensor) {
	b.addBranch(c, &b.attention, x)
	mark := c.arena.used
	added := c.arena.passing(x.Rows(), b.width) // the result of the shortcut
	inner := c.arena.used
	operand, y := c.arena.take(x.Rows(), b.width), c.arena.passing(x.Rows(), b.width)
	b.mlp.pre.forward(c, operand, x)
	b.mlp.body.forward(c, y, operand)
	s.rule.forward(c, added, operand)
	c.add(x, y, 1)
	c.arena.used = inner
	b.addBranch(c, &s.attention, x)
	b.addBranch(c, &s.mlp, x)
	c.add(x, added, 1)
	c.arena.used = mark
}

func (s *shortcut) scratch(b *block, rows int) int {
	one := floats(rows, b.width)
	most := max(b.attention.scratch(rows), one+max(b.mlp.body.scratch(rows), s.rule.scratch(rows)), s.attention.scratch(rows), s.mlp.scratch(rows))
	return 2*one + most
}

// pass adds to dst the results of identity experts, which have no weights and return their input.
func (m *moe) pass(c *Context, dst, x tensor.Tensor) {
	if m.spec.Identity == 0 || m.spec.Skips || c.err != nil {
		return
	}
	r, most := &c.routing, lotRows(x.Rows(), m.spec.TopK)
	last := int(r.begin[m.choices()])
	for first := int(r.begin[m.spec.Count]); first < last && c.err == nil; {
		mark, end := c.arena.used, min(first+most, last)
		y := c.arena.take(end-first, m.width)
		c.backend.Gather(y, x, r.rows[first:end])
		c.backend.ScatterAdd(dst, y, r.rows[first:end], r.shares[first:end])
		c.arena.used, first = mark, end
	}
}
