package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// An affine is a shift and a factor for each channel.
type affine struct{ bias, factor param }

// embedSum finds what an affine map of the embeddings has, see [meta.AffineSpec]. It appends the node that has its Params.
func (c *compiler) embedSum(n Node, s *meta.AffineSpec, width int, nodes *[]Node) (*affine, error) {
	if s == nil {
		return nil, nil
	}
	child, err := c.child(n, "module with the sum of the embeddings", s.Module)
	if err != nil {
		return nil, err
	}
	a := &affine{}
	if a.bias, err = c.param(child, s.Bias, width); err != nil {
		return nil, err
	}
	a.factor, err = c.param(child, s.Factor, width)
	own := *child.Module
	own.Children = nil
	*nodes = append(*nodes, Node{child.Path, &own})
	return a, err
}

// apply changes x. a may be nil.
func (a *affine) apply(c *Context, x tensor.Tensor) {
	if a != nil {
		c.addVector(x, a.bias)
		c.multiplyVector(x, a.factor)
	}
}

// branchSum is what the two terms of a branch's sum pass, see [meta.BlockSpec].
type branchSum struct{ stream, branch affine }

// branchSums compiles those of a block.
func (c *compiler) branchSums(n Node, s *meta.BlockSpec, b *block) (err error) {
	for _, p := range []struct {
		name string
		to   **branchSum
	}{{s.AttentionSum, &b.attention.sum}, {s.MLPSum, &b.mlp.sum}} {
		if p.name == "" {
			continue
		}
		if !twoBranches(s) {
			return at(n.Path, "sums with learned factors in a block of another form than two branches in sequence")
		}
		child, err := c.child(n, "factors of a sum", p.name)
		if err != nil {
			return err
		}
		sum := &branchSum{}
		for _, q := range []struct {
			name string
			to   *param
		}{{"hidden_states_bias", &sum.branch.bias}, {"hidden_states_scale", &sum.branch.factor}, {"residual_bias", &sum.stream.bias}, {"residual_scale", &sum.stream.factor}} {
			if *q.to, err = c.param(child, q.name, b.width); err != nil {
				return err
			}
		}
		c.hostOnly("sums with learned factors")
		*p.to = sum
	}
	return nil
}

// apply changes both terms. s may be nil.
func (s *branchSum) apply(c *Context, stream, branch tensor.Tensor) {
	if s != nil {
		s.stream.apply(c, stream)
		s.branch.apply(c, branch)
	}
}

// addVector adds a vector to each row of x. p may be missing.
func (c *Context) addVector(x tensor.Tensor, p param) {
	if p.Param == nil || c.err != nil {
		return
	}
	mark := c.arena.used
	y := c.arena.take(x.Rows(), x.Cols())
	c.repeatVector(y, p)
	c.add(x, y, 1)
	c.arena.used = mark
}

// multiplyVector multiplies each row of x by a vector.
func (c *Context) multiplyVector(x tensor.Tensor, p param) {
	mark := c.arena.used
	y := c.arena.take(x.Rows(), x.Cols())
	if c.repeatVector(y, p); c.err == nil {
		c.backend.Gate(x, x, y, meta.ActNone, 0)
	}
	c.arena.used = mark
}
