package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// norm is RMS or layer normalisation, of whole rows or of each head.
type norm struct {
	path         string
	spec         *meta.NormSpec
	weight, bias param
	each         []*norm // one per head, if they are separate modules
	width        int
}

// norm compiles a Norm of rows of width in, a multiple of its Dim.
func (c *compiler) norm(n Node, in int) (*norm, error) {
	s, err := spec[meta.NormSpec](n, meta.KindNorm)
	if err != nil {
		return nil, err
	}
	if s.Dim < 1 || in%s.Dim != 0 || (s.Heads > 0 && in != s.Heads*s.Dim) {
		return nil, at(n.Path, "a norm over %d channels of %d, with weights for %d heads", s.Dim, in, s.Heads)
	}
	r := &norm{path: n.Path, spec: s, width: in}
	if s.Heads > 0 && s.Each != "" {
		r.each, err = c.eachNorm(n, s)
		return r, err
	}
	shape := []int{s.Dim}
	if s.Heads > 0 {
		shape = []int{s.Heads, s.Dim}
		if p := n.Module.Param("weight"); p != nil && len(p.Shape) == 1 {
			shape = []int{s.Heads * s.Dim}
		}
	}
	if r.weight, err = c.optional(n, "weight", shape...); err != nil {
		return nil, err
	}
	r.bias, err = c.optional(n, "bias", shape...)
	return r, err
}

// eachNorm compiles per-head norms that are separate modules.
func (c *compiler) eachNorm(n Node, s *meta.NormSpec) ([]*norm, error) {
	list, err := c.child(n, "norms of the heads", s.Each)
	if err != nil {
		return nil, err
	}
	if len(list.Module.Children) != s.Heads {
		return nil, at(list.Path, "%d norms for %d heads", len(list.Module.Children), s.Heads)
	}
	each := make([]*norm, s.Heads)
	for i, child := range list.Module.Children {
		if each[i], err = c.norm(Node{meta.Join(list.Path, child.Name), child.Resolve()}, s.Dim); err != nil {
			return nil, err
		}
	}
	return each, nil
}

// normNamed compiles the norm that a spec names, or returns nil for none.
func (c *compiler) normNamed(n Node, role, name string, in int) (*norm, error) {
	if name == "" {
		return nil, nil
	}
	child, err := c.child(n, role, name)
	if err != nil {
		return nil, err
	}
	return c.norm(child, in)
}

// forward allows dst and x to be the same.
func (r *norm) forward(c *Context, dst, x tensor.Tensor) {
	if r.each != nil {
		for i, head := range r.each {
			from, to := i*r.spec.Dim, (i+1)*r.spec.Dim
			head.forward(c, dst.Columns(from, to), x.Columns(from, to))
		}
		return
	}
	weight, bias := c.vector(r.weight), c.vector(r.bias)
	if c.err == nil {
		c.backend.Norm(dst, x, weight, bias, *r.spec)
	}
}

func (r *norm) scratch(int) int { return 0 }
func (r *norm) cols() int       { return r.width }
