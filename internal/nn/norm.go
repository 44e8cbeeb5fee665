package nn

import (
	"math"
	"slices"

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
	factor       float32 // multiplies the result; 0 means 1
	gate         *mlp    // of the norm's result; nil if there is none
	number       int     // number in Program.norms, from 1 on; 0 if it has no weights, or if its rows are not those of the pass
}

// norm compiles a Norm of rows of width in, which must be a multiple of its Dim.
func (c *compiler) norm(n Node, in int) (*norm, error) {
	s, err := spec[meta.NormSpec](n, meta.KindNorm)
	if err != nil {
		return nil, err
	}
	if s.Dim < 1 || in%s.Dim != 0 || (s.Heads > 0 && in != s.Heads*s.Dim) {
		return nil, at(n.Path, "a norm over %d channels of %d, with weights for %d heads", s.Dim, in, s.Heads)
	}
	if s.Gate != "" {
		return c.gatedNorm(n, s, in)
	}
	r := &norm{path: n.Path, spec: s, width: in}
	if s.L2 {
		if err := r.unitLength(n, s); err != nil {
			return nil, err
		}
	}
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
	if r.bias, err = c.optional(n, "bias", shape...); err != nil {
		return nil, err
	}
	c.replaceable(r)
	return r, nil
}

// unitLength makes r, an RMS norm, divide by the root of the sum of squares instead of their mean.
func (r *norm) unitLength(n Node, s *meta.NormSpec) error {
	if s.Layer || s.Heads > 0 || len(n.Module.Params) > 0 {
		return at(n.Path, "an L2 norm with a mean, weights or heads")
	}
	mean := *s
	mean.Eps /= float32(s.Dim)
	r.spec, r.factor = &mean, float32(math.Pow(float64(s.Dim), -0.5))
	return nil
}

// gatedNorm compiles the norm below n and the gate of its result.
func (c *compiler) gatedNorm(n Node, s *meta.NormSpec, in int) (*norm, error) {
	r, err := c.normNamed(n, "norm before the gate", s.Inner, in)
	if err != nil {
		return nil, err
	}
	if r == nil || r.each != nil || r.gate != nil || in != s.Dim {
		return nil, at(n.Path, "a gate behind something else than one norm of all %d channels", in)
	}
	child, err := c.child(n, "gate of the norm", s.Gate)
	if err != nil {
		return nil, err
	}
	if r.gate, err = c.mlp(child, in); err == nil && r.gate.cols() != in {
		err = at(child.Path, "a gate of width %d behind a norm of %d", r.gate.cols(), in)
	}
	return r, err
}

// replaceable assigns a number to r, so that adapters can replace its weights. Norms of one
// module share the number.
func (c *compiler) replaceable(r *norm) {
	if r.weight.Param == nil && r.bias.Param == nil {
		return
	}
	norms := &c.program.norms
	at := slices.IndexFunc(*norms, func(other *norm) bool { return other.path == r.path })
	if at < 0 {
		*norms, at = append(*norms, r), len(*norms)
	}
	r.number = at + 1
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

// normNamed compiles the norm that a spec names. It returns nil if there is none.
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

// forward allows dst and x to be the same. x must have all rows of the pass, unless r has no
// number.
func (r *norm) forward(c *Context, dst, x tensor.Tensor) { r.compute(c.all(), dst, x) }

// compute is forward in a scope, which must have all rows of the pass if r has a gate.
func (r *norm) compute(c scope, dst, x tensor.Tensor) {
	if r.gate != nil {
		r.gated(c, dst, x)
		return
	}
	r.normalise(c, dst, x)
}

// gated multiplies the norm's result by the sigmoid of its gate.
func (r *norm) gated(c scope, dst, x tensor.Tensor) {
	mark := c.arena.used
	y, gate := c.arena.take(x.Rows(), r.width), c.arena.take(x.Rows(), r.width)
	r.normalise(c, y, x)
	if r.gate.forward(c.Context, gate, y); c.err == nil {
		c.backend.Gate(dst, gate, y, meta.ActSigmoid, 0)
	}
	c.arena.used = mark
}

// normalise is compute without the gate.
func (r *norm) normalise(c scope, dst, x tensor.Tensor) {
	switch {
	case r.each != nil:
		for i, head := range r.each {
			from, to := i*r.spec.Dim, (i+1)*r.spec.Dim
			head.compute(c, dst.Columns(from, to), x.Columns(from, to))
		}
	case c.lowRank.owns && r.number > 0:
		r.computeEach(c, dst, x)
	default:
		r.apply(c.Context, dst, x, nil)
	}
}

// apply normalises with the weights of o, or with the model's if o is nil.
func (r *norm) apply(c *Context, dst, x tensor.Tensor, o *own) {
	var weight, bias tensor.Tensor
	if o == nil {
		weight, bias = c.vector(r.weight), c.vector(r.bias)
	} else {
		weight, bias = o.vectors()
	}
	if c.err == nil {
		c.backend.Norm(dst, x, weight, bias, *r.spec)
		c.scale(dst, orOne(r.factor))
	}
}

func (r *norm) scratch(rows int) int {
	if r.gate == nil {
		return 0
	}
	return 2*floats(rows, r.width) + r.gate.scratch(rows)
}

func (r *norm) cols() int { return r.width }

// finalNorm compiles the norm of all hidden states, times NormScale. The norm of a multiple of a
// row is the norm of the row with another epsilon.
func (c *compiler) finalNorm(n Node, s *meta.CausalLMSpec, width int) (*norm, error) {
	r, err := c.normNamed(n, "final norm", s.Norm, width)
	if by := orOne(s.NormScale); err == nil && by != 1 {
		if r == nil || r.each != nil || r.gate != nil {
			return nil, at(n.Path, "a factor of hidden states without a plain final norm")
		}
		scaled := *r.spec
		scaled.Eps /= by * by
		r.spec = &scaled
	}
	return r, err
}
