package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A headGate multiplies the outputs of attention heads by an activation of a projection of the
// attention's input.
type headGate struct {
	linear     *linear
	bias       param // per head, added to all of its channels; empty if there is none
	act        meta.Activation
	heads, dim int
	channels   *channelScale // of the projection's result; nil for none
	byHead     bool          // the projection has one value per head instead of per channel
	ones       []float32     // a column that repeats a head's value for its channels
}

// headGate compiles the gate of an attention. It returns nil if there is none.
func (c *compiler) headGate(n Node, s *meta.AttentionSpec, in int) (g *headGate, err error) {
	if s.Gate == "" {
		return nil, nil
	}
	g = &headGate{act: s.GateAct, heads: s.Heads, dim: s.ValueDim, byHead: s.GateByHead, ones: slices.Repeat([]float32{1}, s.ValueDim)}
	if g.act == meta.ActNone {
		g.act = meta.ActSigmoid
	}
	if s.GateByHead || s.GateBias != "" {
		c.spreads(g.heads, g.dim)
	}
	width := s.Heads * s.ValueDim
	if s.GateByHead {
		width = s.Heads
	}
	if s.GateBias != "" {
		if s.GateByHead {
			return nil, at(n.Path, "a bias beside gates of a number for each head")
		}
		c.hostOnly("biases of gates")
		if g.bias, err = c.param(n, s.GateBias, s.Heads); err != nil {
			return nil, err
		}
	}
	if g.linear, err = c.linearNamed(n, "gate", s.Gate, in, width); err != nil {
		return nil, err
	}
	if s.GateChannels != nil && s.GateByHead {
		return nil, at(n.Path, "factors of channels beside gates of a number for each head")
	}
	g.channels, err = c.channelScale(n, s.GateChannels, width)
	return g, err
}

// apply returns the heads' outputs y times the gate of x.
func (g *headGate) apply(c *Context, x, y tensor.Tensor) tensor.Tensor {
	gate := c.arena.take(y.Rows(), y.Cols())
	if !g.byHead {
		g.linear.forward(c, gate, x)
		g.channels.apply(c, gate)
		if g.addBias(c, gate); c.err == nil {
			c.backend.Gate(gate, gate, y, g.act, 0)
		}
		return gate
	}
	byHead := c.arena.take(y.Rows(), g.heads)
	g.linear.forward(c, byHead, x)
	if op, ok := c.backend.(backend.HeadGates); ok && c.err == nil {
		op.GateHeads(gate, byHead, y, g.act)
	} else if c.err == nil {
		c.backend.Gate(byHead, byHead, tensor.Tensor{}, g.act, 0)
		c.spread(gate, byHead, g.ones)
		c.backend.Gate(gate, gate, y, meta.ActNone, 0)
	}
	return gate
}

// addBias adds the bias of each head, if there is one, to its channels.
func (g *headGate) addBias(c *Context, gate tensor.Tensor) {
	if g.bias.Param == nil {
		return
	}
	mark := c.arena.used
	wide, byHead := c.arena.take(gate.Rows(), gate.Cols()), c.arena.take(gate.Rows(), g.heads)
	if c.repeatVector(byHead, g.bias); c.err == nil {
		c.spread(wide, byHead, g.ones)
		c.backend.Add(gate, wide, 1)
	}
	c.arena.used = mark
}

// spreadValues is the largest number of values that a product of spread multiplies: the memory of
// products grows with it.
const spreadValues = 4096

// spread repeats the value of each head for its channels, len(ones) of them, by products with a
// column of ones. The compiler must know of it (spreads).
func (c *Context) spread(dst, byHead tensor.Tensor, ones []float32) {
	n, dim := byHead.Rows()*byHead.Cols(), len(ones)
	to, from := matrix(dst, n, dim), matrix(byHead, n, 1)
	column := backend.Matrix{Tensor: tensor.Floats(ones, dim, 1)}
	for i := 0; i < n; i += spreadValues {
		end := min(i+spreadValues, n)
		c.backend.Linear(to.Slice(i, end), from.Slice(i, end), column, tensor.Tensor{})
	}
}

// scratch returns the scratch memory of a gate, which may be nil.
func (g *headGate) scratch(rows int) int {
	switch {
	case g == nil:
		return 0
	case g.bias.Param != nil:
		return 2*floats(rows, g.heads*g.dim) + floats(rows, g.heads) + g.channels.scratch(rows)
	case !g.byHead:
		return floats(rows, g.heads*g.dim) + g.channels.scratch(rows)
	}
	return floats(rows, g.heads*g.dim) + floats(rows, g.heads)
}

// of returns the projection of a gate, which may be nil.
func (g *headGate) of() *linear {
	if g == nil {
		return nil
	}
	return g.linear
}
