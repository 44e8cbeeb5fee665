package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// deepRouter is what a router has in front of its last map, see [meta.RouterSpec].
type deepRouter struct {
	spec   *meta.RouterSpec
	down   *linear
	factor param // none for the first block
	norm   *norm
	maps   [2]*linear
}

// deepRouter compiles m's router n and its last map, or returns nil for a router of one map.
func (c *compiler) deepRouter(n Node, m *moe) (*deepRouter, error) {
	s := m.spec.Deep
	if s == nil {
		return nil, nil
	}
	if s.Width < 1 || c.program.width-c.program.streamWidth != s.Width {
		return nil, at(n.Path, "a router's state of %d channels, want the %d that blocks hand on", s.Width, c.program.width-c.program.streamWidth)
	}
	d := &deepRouter{spec: s}
	var err error
	if d.down, err = c.linearNamed(n, "map to the state", s.Down, m.width, s.Width); err != nil {
		return nil, err
	}
	if s.Factor != "" {
		if d.factor, err = c.param(n, s.Factor, s.Width); err != nil {
			return nil, err
		}
	}
	if d.norm, err = c.normNamed(n, "norm of the state", s.Norm, s.Width); err != nil {
		return nil, err
	}
	for i, name := range s.Maps {
		if d.maps[i], err = c.linearNamed(n, "map of the state", name, s.Width, s.Width); err != nil {
			return nil, err
		}
		d.maps[i].exact = true // rounding must not change the choice of experts
	}
	d.down.exact = true
	out, err := c.child(n, "last map", s.Out)
	if err != nil {
		return nil, err
	}
	return d, c.routes(out, m, s.Width)
}

// operand returns the operand of the router's last map for x, and hands the state on. Without d it returns x.
func (d *deepRouter) operand(c *Context, x tensor.Tensor) tensor.Tensor {
	if d == nil || c.err != nil {
		return x
	}
	rows := x.Rows()
	state, y := c.arena.take(rows, d.spec.Width), c.arena.take(rows, d.spec.Width)
	d.down.forward(c, state, x)
	if d.factor.Param != nil && c.err == nil {
		c.copyRows(y, c.carried)
		c.multiplyVector(y, d.factor)
		c.add(state, y, 1)
	}
	if c.err == nil {
		c.copyRows(c.carried, state)
		d.norm.forward(c, state, state)
	}
	for _, l := range d.maps {
		if l.forward(c, y, state); c.err == nil {
			c.activate(state, y, tensor.Tensor{}, gating{act: d.spec.Act})
		}
	}
	return state
}

// scratch is the memory of d, which may be nil.
func (d *deepRouter) scratch(rows int) int {
	if d == nil {
		return 0
	}
	return 3 * floats(rows, d.spec.Width)
}
