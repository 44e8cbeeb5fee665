package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// relative computes biases of attention scores by distance, see [meta.RelativeSpec].
type relative struct {
	states   *linear
	profiles param
	rank     int
	growth   int // table of the factors of positions, -1 if there is none
}

// relative compiles the biases of a. It returns nil if there are none.
func (c *compiler) relative(n Node, a *attention, in int) (*relative, error) {
	s := a.spec.Relative
	if s == nil {
		return nil, nil
	}
	if a.spec.Softcap != 0 || a.spec.Blocks != nil || a.spec.Difference != nil || a.spec.KeyBias != nil || a.spec.Shared || s.Rank < 1 || s.Extent < 1 {
		return nil, at(n.Path, "biases of %d distances in %d ranks with capped scores, chosen keys or other heads", s.Extent, s.Rank)
	}
	c.together("biases of distances that depend on the query")
	r := &relative{rank: s.Rank, growth: -1}
	var err error
	if r.states, err = c.linearNamed(n, "states of the biases", s.States, in, a.spec.Heads*s.Rank); err != nil {
		return nil, err
	}
	child, err := c.child(n, "profiles of the biases", s.Profiles)
	if err != nil {
		return nil, err
	}
	if r.profiles, err = c.param(child, "proj", s.Rank, s.Extent); err != nil {
		return nil, err
	}
	c.widens(s.Rank * s.Extent)
	c.usedNext(a.gate.of(), a.out)
	if s.Growth != nil {
		r.growth, err = c.rope(n.Path, s.Growth, s.Rank)
	}
	return r, err
}

// of returns the biases for the rows of x, the input of the attention. r may be nil.
func (r *relative) of(c *Context, x tensor.Tensor) (b backend.Relative) {
	if r == nil {
		return b
	}
	states := c.arena.take(x.Rows(), r.states.out)
	r.states.forward(c, states, x)
	profiles := c.vector(r.profiles)
	if c.err != nil {
		return b
	}
	c.rotate(r.growth, states, r.rank)
	return backend.Relative{States: states, Profiles: profiles}
}

// scratch returns the scratch memory of r, which may be nil.
func (r *relative) scratch(rows int) int {
	if r == nil {
		return 0
	}
	return floats(rows, r.states.out)
}
