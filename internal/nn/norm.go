package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// norm is RMS or layer normalisation, of whole rows or of each head.
type norm struct {
	path         string
	spec         *meta.NormSpec
	weight, bias *meta.Param
	width        int
}

// norm compiles a Norm of rows of width in, a multiple of its Dim.
func (c *compiler) norm(n Node, in int) (*norm, error) {
	s, err := spec[meta.NormSpec](n, meta.KindNorm)
	if err != nil {
		return nil, err
	}
	if s.Dim < 1 || in%s.Dim != 0 {
		return nil, at(n.Path, "a norm over %d channels of %d", s.Dim, in)
	}
	r := &norm{path: n.Path, spec: s, width: in}
	if r.weight, err = c.param(n, "weight", true, s.Dim); err != nil {
		return nil, err
	}
	r.bias, err = c.param(n, "bias", true, s.Dim)
	return r, err
}

// normNamed compiles the norm that a spec names, or none.
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

// forward allows dst to be x.
func (r *norm) forward(c *Context, dst, x tensor.Tensor) {
	weight, bias := c.vector(r.path, "weight", r.weight), c.vector(r.path, "bias", r.bias)
	if c.err == nil {
		c.backend.Norm(dst, x, weight, bias, *r.spec)
	}
}

func (r *norm) scratch(int) int { return 0 }
func (r *norm) cols() int       { return r.width }
