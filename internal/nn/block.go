package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// block is one decoder layer: two branches on a residual stream.
type block struct {
	attention, mlp branch
	parallel       bool
	scale          float32
	width          int
	path           string
}

// A branch is post(body(pre(x))); either norm may be missing.
type branch struct {
	pre, post *norm
	body      rule
}

func (c *compiler) block(n Node, in int) (*block, error) {
	s, err := spec[meta.BlockSpec](n, meta.KindBlock)
	if err != nil {
		return nil, err
	}
	if s.Parallel && (s.PostAttentionNorm != "" || s.PostMLPNorm != "") {
		return nil, at(n.Path, "norms after the branches of a parallel block")
	}
	b := &block{parallel: s.Parallel, scale: orOne(s.ResidualScale), width: in, path: n.Path}
	if b.attention, err = c.branch(n, "attention", s.AttentionNorm, s.Attention, s.PostAttentionNorm, in); err != nil {
		return nil, err
	}
	b.mlp, err = c.branch(n, "mlp", s.MLPNorm, s.MLP, s.PostMLPNorm, in)
	return b, err
}

func (c *compiler) branch(n Node, role, pre, body, post string, in int) (b branch, err error) {
	if b.pre, err = c.normNamed(n, "norm before the "+role, pre, in); err != nil {
		return b, err
	}
	child, err := c.child(n, role, body)
	if err != nil {
		return b, err
	}
	if b.body, err = c.rule(child, in); err != nil {
		return b, err
	}
	if b.body.cols() != in {
		return b, at(child.Path, "a result of width %d in a stream of %d", b.body.cols(), in)
	}
	b.post, err = c.normNamed(n, "norm after the "+role, post, in)
	return b, err
}

// inPlace computes x = block(x).
func (b *block) inPlace(c *Context, x tensor.Tensor) {
	if c.tiled(x) {
		b.inTiles(c, x)
	} else {
		b.together(c, x)
	}
}

// together computes x = block(x) for all rows of x at once.
func (b *block) together(c *Context, x tensor.Tensor) {
	if !b.parallel {
		b.addBranch(c, &b.attention, x)
		b.addBranch(c, &b.mlp, x)
		return
	}
	mark := c.arena.used
	first := c.arena.passing(x.Rows(), b.width)
	b.attention.forward(c, first, x)
	second := c.arena.passing(x.Rows(), b.width)
	b.mlp.forward(c, second, x)
	c.add(x, first, b.scale)
	c.add(x, second, b.scale)
	c.arena.used = mark
}

// addBranch adds a branch of x to x.
func (b *block) addBranch(c *Context, branch *branch, x tensor.Tensor) {
	mark := c.arena.used
	y := c.arena.passing(x.Rows(), b.width)
	branch.forward(c, y, x)
	c.add(x, y, b.scale)
	c.arena.used = mark
}

func (c *Context) add(dst, x tensor.Tensor, scale float32) {
	if c.err == nil {
		c.backend.Add(dst, x, scale)
	}
}

func (b *branch) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	if b.pre != nil {
		y := c.arena.passing(x.Rows(), b.pre.cols())
		b.pre.forward(c, y, x)
		x = y
	}
	b.body.forward(c, dst, x)
	if b.post != nil {
		b.post.forward(c, dst, dst)
	}
	c.arena.used = mark
}

func (b *branch) scratch(rows int) int {
	n := b.body.scratch(rows)
	if b.pre != nil {
		n += floats(rows, b.pre.cols())
	}
	return n
}

func (b *block) forward(c *Context, dst, x tensor.Tensor) {
	c.copyRows(dst, x)
	b.inPlace(c, dst)
}

func (b *block) scratch(rows int) int {
	if b.parallel {
		return 2*floats(rows, b.width) + max(b.attention.scratch(rows), b.mlp.scratch(rows))
	}
	return floats(rows, b.width) + max(b.attention.scratch(rows), b.mlp.scratch(rows))
}

func (b *block) cols() int { return b.width }
