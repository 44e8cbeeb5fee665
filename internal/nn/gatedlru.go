package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// gatedLRU is a recurrent block with real-gated linear recurrent units (RG-LRU).
type gatedLRU struct {
	path           string
	spec           *meta.GatedLRUSpec
	x, y, out      *linear
	conv           convolution
	input, decay   headMap
	rate           param
	recurrentFirst int // first element of the recurrent state, which follows the convolution's
}

func (c *compiler) gatedLRU(n Node, in int) (rule, error) {
	s, err := spec[meta.GatedLRUSpec](n, meta.KindGatedLRU)
	if err != nil {
		return nil, err
	}
	if s.Heads < 1 || s.Width < 1 || s.Width%s.Heads != 0 || s.Kernel < 2 || !(s.Power > 0) {
		return nil, at(n.Path, "%d channels of %d heads, convolved over %d tokens, with decays of power %g", s.Width, s.Heads, s.Kernel, s.Power)
	}
	r := &gatedLRU{path: n.Path, spec: s, recurrentFirst: s.Width * (s.Kernel - 1)}
	if r.x, err = c.linearNamed(n, "input", s.X, in, s.Width); err != nil {
		return nil, err
	}
	if r.y, err = c.linearNamed(n, "output gate", s.Y, in, s.Width); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, s.Width, 0); err != nil {
		return nil, err
	}
	if r.conv, err = c.convolution(n, s.Conv, s.Width, s.Kernel); err != nil {
		return nil, err
	}
	unit, err := c.child(n, "gated units", s.Unit)
	if err != nil {
		return nil, err
	}
	width := s.Width / s.Heads
	if r.input, err = c.headMap(unit, s.InputGate, s.InputBias, s.Heads, width, width, true); err != nil {
		return nil, err
	}
	if r.decay, err = c.headMap(unit, s.DecayGate, s.DecayBias, s.Heads, width, width, true); err != nil {
		return nil, err
	}
	if r.rate, err = c.param(unit, s.Rate, s.Width); err != nil {
		return nil, err
	}
	c.together("gated linear recurrent units")
	const channels = 64 // channels that the recurrence computes together
	c.keeps(2 * channels)
	return r, c.state(n.Path, s.State, r.recurrentFirst+s.Width)
}

func (r *gatedLRU) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	in, y, mixed, decay := c.arena.take(rows, s.Width), c.arena.take(rows, s.Width), c.arena.take(rows, s.Width), c.arena.take(rows, s.Width)
	together := c.collect()
	r.x.compute(together, in, x, 0)
	r.y.compute(together, y, x, 0)
	c.compute()
	r.conv.channels(c, mixed, in, s.State, 0, meta.ActNone)
	for h := range s.Heads {
		begin, end := h*s.Width/s.Heads, (h+1)*s.Width/s.Heads
		r.input.forward(c.all(), h, in.Columns(begin, end), mixed.Columns(begin, end))
		r.decay.forward(c.all(), h, decay.Columns(begin, end), mixed.Columns(begin, end))
	}
	rate := c.vector(r.rate)
	op, ok := c.backend.(backend.GatedUnits)
	if !ok {
		c.fail("%s: this backend has no gated linear recurrent units", r.path)
	}
	if c.err == nil {
		c.backend.Gate(in, in, mixed, meta.ActSigmoid, 0)
		c.backend.Gate(decay, decay, tensor.Tensor{}, meta.ActSigmoid, 0)
		op.GatedLRU(mixed, backend.GatedLRUInputs{X: in, Gate: decay, Rate: rate}, c.states(s.State, r.recurrentFirst), backend.GatedLRUArgs{Channels: s.Width, Power: s.Power})
		c.backend.Gate(y, y, mixed, s.Act, 0)
	}
	r.out.forward(c, dst, y)
	c.arena.used = mark
}

func (r *gatedLRU) scratch(rows int) int { return 4 * floats(rows, r.spec.Width) }

func (r *gatedLRU) cols() int { return r.out.cols() }
