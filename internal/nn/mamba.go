package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// mamba is the mixer of the first Mamba.
type mamba struct {
	path                   string
	spec                   *meta.MambaSpec
	in, choose, steps, out *linear
	stepNorm, bNorm, cNorm *norm // may be nil
	conv                   convolution
	aLog, d                param
	recurrentFirst         int // first element of the recurrent state; the convolution's is before it
}

func (c *compiler) mamba(n Node, in int) (rule, error) {
	s, err := spec[meta.MambaSpec](n, meta.KindMamba)
	if err != nil {
		return nil, err
	}
	if s.Width < 1 || s.StateDim < 1 || s.StepRank < 1 || s.Kernel < 2 {
		return nil, at(n.Path, "%d channels with %d numbers each and steps of rank %d, convolved over %d tokens", s.Width, s.StateDim, s.StepRank, s.Kernel)
	}
	r := &mamba{path: n.Path, spec: s, recurrentFirst: s.Width * (s.Kernel - 1)}
	for _, p := range [...]struct {
		to         **linear
		role, name string
		in, out    int
	}{
		{&r.in, "input", s.In, in, 2 * s.Width}, {&r.choose, "selection", s.Select, s.Width, s.StepRank + 2*s.StateDim},
		{&r.steps, "steps", s.Steps, s.StepRank, s.Width}, {&r.out, "output", s.Out, s.Width, 0},
	} {
		if *p.to, err = c.linearNamed(n, p.role, p.name, p.in, p.out); err != nil {
			return nil, err
		}
	}
	for _, p := range [...]struct {
		to    **norm
		name  string
		width int
	}{{&r.stepNorm, s.StepNorm, s.StepRank}, {&r.bNorm, s.BNorm, s.StateDim}, {&r.cNorm, s.CNorm, s.StateDim}} {
		if *p.to, err = c.normNamed(n, "norm", p.name, p.width); err != nil {
			return nil, err
		}
	}
	if r.conv, err = c.convolution(n, s.Conv, s.Width, s.Kernel); err != nil {
		return nil, err
	}
	if r.aLog, err = c.param(n, s.ALog, s.Width, s.StateDim); err != nil {
		return nil, err
	}
	if r.d, err = c.param(n, s.D, s.Width); err != nil {
		return nil, err
	}
	const channels = 64 // of what the recurrence computes together
	c.widens(s.Width * s.StateDim)
	c.keeps(2 * channels * s.StateDim)
	return r, c.state(n.Path, s.State, r.recurrentFirst+s.Width*s.StateDim)
}

func (r *mamba) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	all, mixed := c.arena.take(rows, 2*s.Width), c.arena.take(rows, s.Width)
	chosen, steps := c.arena.take(rows, r.choose.out), c.arena.take(rows, s.Width)
	r.in.forward(c, all, x)
	conv := meta.ActSiLU
	if s.Act != meta.ActSiLU {
		conv = meta.ActNone
	}
	r.conv.channels(c, mixed, all.Columns(0, s.Width), s.State, 0, conv)
	if c.err == nil && conv != s.Act {
		c.backend.Gate(mixed, mixed, tensor.Tensor{}, s.Act, 0)
	}
	r.choose.forward(c, chosen, mixed)
	first := s.StepRank + s.StateDim
	compressed, in, out := chosen.Columns(0, s.StepRank), chosen.Columns(s.StepRank, first), chosen.Columns(first, first+s.StateDim)
	for _, p := range [...]struct {
		norm *norm
		x    tensor.Tensor
	}{{r.stepNorm, compressed}, {r.bNorm, in}, {r.cNorm, out}} {
		if p.norm != nil && c.err == nil {
			p.norm.forward(c, p.x, p.x)
		}
	}
	r.steps.forward(c, steps, compressed)
	y := all.Columns(0, s.Width)
	r.scan(c, y, backend.SelectiveInputs{X: mixed, B: in, C: out, DT: steps})
	if c.err == nil {
		c.backend.Gate(mixed, all.Columns(s.Width, 2*s.Width), y, meta.ActSiLU, 0)
	}
	r.out.forward(c, dst, mixed)
	c.arena.used = mark
}

// scan sets y to the result of the recurrence.
func (r *mamba) scan(c *Context, y tensor.Tensor, in backend.SelectiveInputs) {
	in.ALog, in.D = c.vector(r.aLog), c.vector(r.d)
	op, ok := c.backend.(backend.Scans)
	if !ok {
		c.fail("%s: this backend has no selective scans", r.path)
	}
	if c.err == nil {
		op.SelectiveScan(y, in, c.states(r.spec.State, r.recurrentFirst), backend.SelectiveArgs{Channels: r.spec.Width, StateDim: r.spec.StateDim, Rates: r.spec.Rates})
	}
}

func (r *mamba) scratch(rows int) int {
	return floats(rows, 2*r.spec.Width) + 2*floats(rows, r.spec.Width) + floats(rows, r.choose.out)
}

func (r *mamba) cols() int { return r.out.cols() }
