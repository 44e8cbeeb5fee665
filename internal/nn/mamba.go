package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// mamba is the mixer of Mamba (version 1).
type mamba struct {
	path                   string
	spec                   *meta.MambaSpec
	heads, width, chosen   int // width is the channels of a head; chosen is the width of its compressed steps, B and C together
	in, out                *linear
	choose, steps          mambaMap
	stepNorm, bNorm, cNorm *norm // may be nil
	conv                   convolution
	aLog, d                param
	recurrentFirst         int // first element of the recurrent state, which follows the convolution's
}

// mambaMap is a linear layer on the channels of a head: that of the mixer's only head, or one of
// a stack.
type mambaMap struct {
	only  *linear
	stack headMap
}

func (m *mambaMap) forward(c scope, head int, dst, x tensor.Tensor) {
	if m.only != nil {
		m.only.compute(c, dst, x, 0)
		return
	}
	m.stack.forward(c, head, dst, x)
}

func (c *compiler) mamba(n Node, in int) (rule, error) {
	s, err := spec[meta.MambaSpec](n, meta.KindMamba)
	if err != nil {
		return nil, err
	}
	if s.Width < 1 || s.StateDim < 1 || s.StepRank < 1 || s.Kernel < 2 {
		return nil, at(n.Path, "%d channels with %d numbers each and steps of rank %d, convolved over %d tokens", s.Width, s.StateDim, s.StepRank, s.Kernel)
	}
	r := &mamba{path: n.Path, spec: s, heads: max(s.Heads, 1), recurrentFirst: s.Width * (s.Kernel - 1), chosen: s.StepRank + 2*s.StateDim}
	if r.width = s.Width / r.heads; r.width*r.heads != s.Width || s.Heads > 0 && s.StepNorm+s.BNorm+s.CNorm != "" {
		return nil, at(n.Path, "%d heads of %d channels, or norms of such heads", s.Heads, s.Width)
	}
	if r.in, err = c.linearNamed(n, "input", s.In, in, 2*s.Width); err != nil {
		return nil, err
	}
	if s.Order == meta.GateInterleaved {
		c.alternates(r.in)
	}
	if err = c.mambaMaps(n, r); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, s.Width, 0); err != nil {
		return nil, err
	}
	if r.conv, err = c.convolution(n, s.Conv, s.Width, s.Kernel); err != nil {
		return nil, err
	}
	const channels = 64 // channels that the recurrence computes together
	c.widens(s.Width * s.StateDim)
	c.keeps(2 * channels * s.StateDim)
	return r, c.state(n.Path, s.State, r.recurrentFirst+s.Width*s.StateDim)
}

// mambaMaps compiles the projections from channels to steps, B and C, and the parameters of the
// states.
func (c *compiler) mambaMaps(n Node, r *mamba) (err error) {
	s, shape := r.spec, []int{r.spec.Width}
	if s.Heads > 0 {
		shape = []int{s.Heads, r.width}
		if r.choose.stack, err = c.headMap(n, s.Select, "", s.Heads, r.width, r.chosen, false); err != nil {
			return err
		}
		if r.steps.stack, err = c.headMap(n, s.Steps, s.StepBias, s.Heads, s.StepRank, r.width, false); err != nil {
			return err
		}
	} else {
		if r.choose.only, err = c.linearNamed(n, "selection", s.Select, s.Width, r.chosen); err != nil {
			return err
		}
		if r.steps.only, err = c.linearNamed(n, "steps", s.Steps, s.StepRank, s.Width); err != nil {
			return err
		}
	}
	for _, p := range [...]struct {
		to    **norm
		name  string
		width int
	}{{&r.stepNorm, s.StepNorm, s.StepRank}, {&r.bNorm, s.BNorm, s.StateDim}, {&r.cNorm, s.CNorm, s.StateDim}} {
		if *p.to, err = c.normNamed(n, "norm", p.name, p.width); err != nil {
			return err
		}
	}
	if r.d, err = c.param(n, s.D, shape...); err != nil {
		return err
	}
	r.aLog, err = c.param(n, s.ALog, append(shape, s.StateDim)...)
	return err
}

func (r *mamba) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	in, mixed := r.in.takeGates(c, rows, s.Order == meta.GateInterleaved), c.arena.take(rows, s.Width)
	chosen, steps := c.arena.take(rows, r.heads*r.chosen), c.arena.take(rows, s.Width)
	r.in.gates(c.all(), in, x, 0)
	conv := meta.ActSiLU
	if s.Act != meta.ActSiLU {
		conv = meta.ActNone
	}
	r.conv.channels(c, mixed, in.gate, s.State, 0, conv)
	if c.err == nil && conv != s.Act {
		c.backend.Gate(mixed, mixed, tensor.Tensor{}, s.Act, 0)
	}
	y := in.gate
	r.project(c, chosen, steps, mixed)
	r.scan(c, y, mixed, chosen, steps)
	if c.err == nil {
		c.backend.Gate(mixed, in.up, y, meta.ActSiLU, 0)
	}
	r.out.forward(c, dst, mixed)
	c.arena.used = mark
}

// project computes the compressed steps, B and C of all heads, and the steps.
func (r *mamba) project(c *Context, chosen, steps, mixed tensor.Tensor) {
	together, s := c.collect(), r.spec
	for h := range r.heads {
		r.choose.forward(together, h, r.chosenOf(chosen, h), r.channelsOf(mixed, h))
	}
	c.compute()
	first := s.StepRank + s.StateDim
	for _, p := range [...]struct {
		norm       *norm
		begin, end int
	}{{r.stepNorm, 0, s.StepRank}, {r.bNorm, s.StepRank, first}, {r.cNorm, first, r.chosen}} {
		if p.norm != nil && c.err == nil {
			p.norm.forward(c, chosen.Columns(p.begin, p.end), chosen.Columns(p.begin, p.end))
		}
	}
	for h := range r.heads {
		r.steps.forward(together, h, r.channelsOf(steps, h), r.chosenOf(chosen, h).Columns(0, s.StepRank))
	}
	c.compute()
}

// channelsOf returns the columns of head h in a matrix with all channels. chosenOf returns them
// in a matrix of compressed steps, B and C.
func (r *mamba) channelsOf(x tensor.Tensor, h int) tensor.Tensor {
	return columns(x, h*r.width, (h+1)*r.width)
}

func (r *mamba) chosenOf(x tensor.Tensor, h int) tensor.Tensor {
	return columns(x, h*r.chosen, (h+1)*r.chosen)
}

// scan sets y to the result of the recurrence.
func (r *mamba) scan(c *Context, y, x, chosen, steps tensor.Tensor) {
	rates, d, s := c.vector(r.aLog), c.vector(r.d), r.spec
	op, ok := c.backend.(backend.Scans)
	if !ok {
		c.fail("%s: this backend has no selective scans", r.path)
	}
	if c.err != nil {
		return
	}
	args := backend.SelectiveArgs{Channels: r.width, StateDim: s.StateDim, Rates: s.Rates}
	for h := range r.heads {
		begin, end := h*r.width, (h+1)*r.width
		of := r.chosenOf(chosen, h).Columns(s.StepRank, r.chosen)
		op.SelectiveScan(r.channelsOf(y, h), backend.SelectiveInputs{
			X: r.channelsOf(x, h), B: of.Columns(0, s.StateDim), C: of.Columns(s.StateDim, 2*s.StateDim), DT: r.channelsOf(steps, h),
			ALog: rates.Slice(begin*s.StateDim, end*s.StateDim), D: d.Slice(begin, end),
		}, c.states(s.State, r.recurrentFirst+begin*s.StateDim), args)
	}
}

func (r *mamba) scratch(rows int) int {
	return 4*floats(rows, r.spec.Width) + floats(rows, r.heads*r.chosen)
}

func (r *mamba) cols() int { return r.out.cols() }
