package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// mlp is down(act(gate(x)) · up(x)), or down(act(up(x))).
type mlp struct {
	path        string
	act         gating
	xielu       *xielu  // replaces act; nil if there is none
	gate, up    *linear // if not fused; without a gate, act applies to up
	fused, down *linear
	adapter     rule  // added to the result of fused; nil if there is none
	innerNorm   *norm // nil if there is none
	interleaved bool
	inner       int
	// gateScale multiplies the gate before the activation; scale multiplies the result.
	gateScale, scale float32
	channels         [2]*channelScale // of gate and up; nil for none
	scaled           param            // also multiplies the result; empty if there is none
	sparse           bool             // small values of the gate are set to 0
	cutoff           float32
}

func (c *compiler) mlp(n Node, in int) (*mlp, error) {
	s, err := spec[meta.MLPSpec](n, meta.KindMLP)
	if err != nil {
		return nil, err
	}
	m := &mlp{path: n.Path, act: gating{s.Act, s.Limit, s.Alpha}, interleaved: s.FusedOrder == meta.GateInterleaved,
		gateScale: orOne(s.GateScale), scale: orOne(s.Scale), sparse: s.Sparse, cutoff: s.Cutoff}
	if s.Sparse {
		c.together("sparse gates")
	}
	if s.Act == meta.ActClampedSiLU {
		c.together("clamped gates")
	}
	if s.FusedAdapter != "" && (s.Fused == "" || m.interleaved) {
		return nil, at(n.Path, "an adapter of a fused gate with another layout than all of gate, then all of up")
	}
	if s.Fused != "" && m.gateScale != 1 {
		return nil, at(n.Path, "a factor of a fused gate")
	}
	switch {
	case s.Fused != "":
		if m.fused, err = c.linearNamed(n, "fused gate", s.Fused, in, 0); err != nil {
			return nil, err
		}
		if m.interleaved { // the rows of gate and up alternate
			c.alternates(m.fused)
		}
		if m.inner = m.fused.out / 2; m.fused.out%2 != 0 {
			return nil, at(n.Path, "a fused gate of width %d, an odd number", m.fused.out)
		}
		if m.adapter, err = c.adapter(n, s.FusedAdapter, in, m.fused.out); err != nil {
			return nil, err
		}
	default:
		if m.up, err = c.linearNamed(n, "up", s.Up, in, 0); err != nil {
			return nil, err
		}
		m.inner = m.up.out
		if s.Gate != "" {
			if m.gate, err = c.linearNamed(n, "gate", s.Gate, in, m.inner); err != nil {
				return nil, err
			}
			c.usedNext(m.up)
		}
	}
	if m.xielu, err = c.xielu(n, s.XIELU); err != nil {
		return nil, err
	}
	if m.innerNorm, err = c.normNamed(n, "norm before down", s.InnerNorm, m.inner); err != nil {
		return nil, err
	}
	if m.scaled, err = c.learnedScale(n, s.ScaleParam); err != nil {
		return nil, err
	}
	c.keepsGate(s.Act, m.inner)
	if m.down, err = c.linearNamed(n, "down", s.Down, m.inner, 0); err != nil {
		return nil, err
	}
	return m, m.scaleChannels(c, n, s)
}

// scaleChannels compiles the factors of the channels of gate and up.
func (m *mlp) scaleChannels(c *compiler, n Node, s *meta.MLPSpec) (err error) {
	for i, by := range []*meta.ChannelScaleSpec{s.GateChannels, s.UpChannels} {
		if by != nil && m.gate == nil {
			return at(n.Path, "factors of channels without a gate of its own")
		}
		if m.channels[i], err = c.channelScale(n, by, m.inner); err != nil {
			return err
		}
	}
	return nil
}

func (m *mlp) forward(c *Context, dst, x tensor.Tensor) { m.run(c, dst, x, false) }

// run is forward. If dst is unread, nothing reads it, and only what gradients need is computed.
func (m *mlp) run(c *Context, dst, x tensor.Tensor, unread bool) {
	mark := c.arena.used
	gate, up := m.open(c.collect(), x)
	c.compute()
	m.adapt(c, gate, up, x)
	if y := m.activated(c.all(), gate, up); unread {
		m.down.record(c.all(), dst, y)
	} else {
		m.down.compute(c.all(), dst, y, 0)
	}
	c.scale(dst, m.scale)
	m.scaleLearned(c, dst)
	c.arena.used = mark
}

// unreadMLP is an mlp whose result nothing reads.
type unreadMLP struct{ *mlp }

func (m unreadMLP) forward(c *Context, dst, x tensor.Tensor) { m.run(c, dst, x, true) }

// learnedScale returns the learned factor of results, if a spec names one.
func (c *compiler) learnedScale(n Node, name string) (param, error) {
	if name == "" {
		return param{}, nil
	}
	c.together("learned factors of MLPs")
	return c.param(n, name, 1)
}

// scaleLearned multiplies dst by the learned factor, if there is one.
func (m *mlp) scaleLearned(c *Context, dst tensor.Tensor) {
	if m.scaled.Param == nil {
		return
	}
	by := c.hostVectors(m.scaled)
	if c.err != nil {
		return
	}
	if !c.recording() {
		c.scale(dst, by[0])
		return
	}
	y := c.arena.take(dst.Rows(), dst.Cols())
	c.copyRows(y, dst)
	c.scale(dst, 0)
	c.arena.recorder.AddLearned(dst, y, by[0], backend.Learned{Weight: c.vector(m.scaled), Slopes: []float32{1}})
}

// open computes the inputs of the activation. up may be missing.
func (m *mlp) open(c scope, x tensor.Tensor) (gate, up tensor.Tensor) {
	switch rows := x.Rows(); {
	case m.fused != nil:
		to := m.fused.takeGates(c.Context, rows, m.interleaved)
		m.fused.gates(c, to, x, 0)
		return to.gate, to.up
	case m.gate != nil:
		gate, up = c.arena.take(rows, m.inner), c.arena.take(rows, m.inner)
		m.gate.compute(c, gate, x, 0)
		m.up.compute(c, up, x, 0)
	default:
		gate = c.arena.take(rows, m.inner)
		m.up.compute(c, gate, x, 0)
	}
	return gate, up
}

// adapt adds the adapter's result for x to gate and up.
func (m *mlp) adapt(c *Context, gate, up, x tensor.Tensor) {
	if m.adapter == nil {
		return
	}
	mark := c.arena.used
	y := c.arena.passing(x.Rows(), 2*m.inner)
	m.adapter.forward(c, y, x)
	c.add(gate, y.Columns(0, m.inner), 1)
	c.add(up, y.Columns(m.inner, 2*m.inner), 1)
	c.arena.used = mark
}

// close computes dst from the results of open.
func (m *mlp) close(c scope, dst, gate, up tensor.Tensor) {
	m.down.compute(c, dst, m.activated(c, gate, up), 0)
}

// activated computes the input of the last map from the results of open.
func (m *mlp) activated(c scope, gate, up tensor.Tensor) tensor.Tensor {
	c.scale(gate, m.gateScale)
	m.channels[0].apply(c.Context, gate)
	m.channels[1].apply(c.Context, up)
	if m.sparse {
		if ops := c.alternating(m.path); ops != nil {
			ops.CutOff(gate, m.cutoff)
		}
	}
	y := gate
	if m.xielu != nil {
		m.xielu.apply(c.Context, y)
	} else if y = c.arena.spare(gate); c.err == nil {
		c.activate(y, gate, up, m.act)
	}
	if m.innerNorm != nil && c.err == nil {
		m.innerNorm.compute(c, y, y)
	}
	return y
}

// gating is an activation with its constants, as in [meta.MoESpec].
type gating struct {
	act          meta.Activation
	limit, alpha float32
}

// activate computes dst from the results of an MLP's first projections, as a says. It may
// overwrite them. dst may be gate.
func (c *Context) activate(dst, gate, up tensor.Tensor, a gating) {
	switch {
	case a.act == meta.ActSiLUAtMost:
		c.siluAtMost(dst, gate, up, a.limit)
	case a.act == meta.ActClampedSwiGLU && a.alpha != 0:
		c.clampedSwiGLU(dst, gate, up, a)
	default:
		c.backend.Gate(dst, gate, up, a.act, a.limit)
	}
}

// siluAtMost is activate for ActSiLUAtMost. SiLU is above -0.28, so a clamp to ±limit only
// changes values above limit.
func (c *Context) siluAtMost(dst, gate, up tensor.Tensor, limit float32) {
	c.backend.Gate(dst, gate, tensor.Tensor{}, meta.ActSiLU, 0)
	c.backend.Gate(dst, dst, tensor.Tensor{}, meta.ActClamp, limit)
	if !up.IsZero() {
		c.backend.Gate(up, up, tensor.Tensor{}, meta.ActClamp, limit)
		c.backend.Gate(dst, dst, up, meta.ActNone, 0)
	}
}

// clampedSwiGLU is activate for ActClampedSwiGLU with an alpha. With s = alpha/1.702 the factor
// g·sigmoid(alpha·g) is that of s·g with the usual alpha, divided by s.
func (c *Context) clampedSwiGLU(dst, gate, up tensor.Tensor, a gating) {
	s := a.alpha / 1.702
	c.scale(gate, s)
	c.backend.Gate(dst, gate, tensor.Tensor{}, a.act, s*a.limit)
	c.scale(dst, 1/s)
	if !up.IsZero() {
		c.backend.Gate(up, up, tensor.Tensor{}, meta.ActClamp, a.limit)
		c.backend.Gate(up, up, dst, meta.ActNone, 0)
		c.add(dst, up, 1)
	}
}

func (m *mlp) scratch(rows int) int {
	if m.fused != nil && !m.interleaved {
		return floats(rows, 2*m.inner) + addedScratch(m.adapter, rows)
	}
	n := 2 * floats(rows, m.inner)
	if m.xielu != nil {
		n += 2 * floats(rows, m.inner)
	}
	n += max(m.channels[0].scratch(rows), m.channels[1].scratch(rows))
	return n
}

func (m *mlp) cols() int { return m.down.cols() }
