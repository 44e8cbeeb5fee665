package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// mamba2 is a Mamba2 mixer.
type mamba2 struct {
	path            string
	spec            *meta.Mamba2Spec
	in, out         *linear
	norm            *norm // may be nil
	conv            convolution
	aLog, dtBias, d param
	inner, groups   int // widths of x, and of B or C
	width           int // width of the input
	recurrentFirst  int // first element of the recurrent state, which follows the convolution's
}

func (c *compiler) mamba2(n Node, in int) (rule, error) {
	s, err := spec[meta.Mamba2Spec](n, meta.KindMamba2)
	if err != nil {
		return nil, err
	}
	if s.Heads < 1 || s.Groups < 1 || s.Heads%s.Groups != 0 || s.HeadDim < 1 || s.StateDim < 1 || s.Kernel < 2 || !(s.StepMin <= s.StepMax) {
		return nil, at(n.Path, "%d heads of %d over %d groups of %d, convolved over %d tokens, with steps from %g to %g",
			s.Heads, s.HeadDim, s.Groups, s.StateDim, s.Kernel, s.StepMin, s.StepMax)
	}
	r := &mamba2{path: n.Path, spec: s, inner: s.Heads * s.HeadDim, groups: s.Groups * s.StateDim, width: in}
	if r.in, err = c.linearNamed(n, "input", s.In, in, 2*r.inner+2*r.groups+s.Heads); err != nil {
		return nil, err
	}
	if r.conv, err = c.convolution(n, s.Conv, r.channels(), s.Kernel); err != nil {
		return nil, err
	}
	for _, p := range [...]struct {
		to   *param
		name string
	}{{&r.aLog, s.ALog}, {&r.dtBias, s.DTBias}, {&r.d, s.D}} {
		if *p.to, err = c.param(n, p.name, s.Heads); err != nil {
			return nil, err
		}
	}
	if r.norm, err = c.normNamed(n, "norm", s.Norm, r.inner); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, r.inner, 0); err != nil {
		return nil, err
	}
	r.recurrentFirst = r.channels() * (s.Kernel - 1)
	c.keeps(2*s.StateDim + s.HeadDim + s.StateDim*s.HeadDim)
	return r, c.state(n.Path, s.State, r.recurrentFirst+r.inner*s.StateDim)
}

// channels returns the number of channels that are convolved.
func (r *mamba2) channels() int { return r.inner + 2*r.groups }

func (r *mamba2) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	all, mixed := c.arena.take(rows, r.in.out), c.arena.take(rows, r.channels())
	y, gated := c.arena.take(rows, r.inner), c.arena.take(rows, r.inner)
	if by := orOne(s.InScale); by != 1 {
		scaled := c.arena.take(rows, r.width)
		c.scaled(scaled, x, by)
		x = scaled
	}
	r.in.forward(c, all, x)
	z, dt := r.scaleParts(c, all)
	conv := meta.ActSiLU
	if s.Act != meta.ActSiLU {
		conv = meta.ActNone
	}
	r.conv.channels(c, mixed, all.Columns(r.inner, r.inner+r.channels()), s.State, 0, conv)
	if c.err == nil && conv != s.Act {
		c.backend.Gate(mixed, mixed, tensor.Tensor{}, s.Act, 0)
	}
	r.recur(c, y, mixed, dt)
	if c.err == nil {
		r.gate(c, gated, z, y)
	}
	r.out.forward(c, dst, gated)
	c.scale(dst, orOne(s.OutScale))
	c.arena.used = mark
}

// scaleParts scales the parts of the input projection. It returns the first part and the last.
func (r *mamba2) scaleParts(c *Context, all tensor.Tensor) (z, dt tensor.Tensor) {
	begin := 0
	for i, n := range [...]int{r.inner, r.inner, r.groups, r.groups, r.spec.Heads} {
		dt = all.Columns(begin, begin+n)
		if i == 0 {
			z = dt
		}
		c.scale(dt, orOne(r.spec.Scales[i]))
		begin += n
	}
	return z, dt
}

// recur computes the recurrence from mixed, the result of the convolution.
func (r *mamba2) recur(c *Context, y, mixed, dt tensor.Tensor) {
	aLog, dtBias, d := c.vector(r.aLog), c.vector(r.dtBias), c.vector(r.d)
	op := c.recurrent(r.path)
	if op == nil {
		return
	}
	s, n := r.spec, r.inner+r.groups
	op.StateSpace(y, backend.StateSpaceInputs{X: mixed.Columns(0, r.inner), B: mixed.Columns(r.inner, n), C: mixed.Columns(n, n+r.groups),
		DT: dt, ALog: aLog, DTBias: dtBias, D: d}, c.states(s.State, r.recurrentFirst),
		backend.StateSpaceArgs{Heads: s.Heads, Groups: s.Groups, HeadDim: s.HeadDim, StateDim: s.StateDim, StepMin: s.StepMin, StepMax: s.StepMax, Rates: s.Rates})
}

// gate sets dst to y, gated by z and normalised.
func (r *mamba2) gate(c *Context, dst, z, y tensor.Tensor) {
	if r.norm != nil && r.spec.NormFirst {
		r.norm.forward(c, y, y)
	}
	c.backend.Gate(dst, z, y, meta.ActSiLU, 0)
	if r.norm != nil && !r.spec.NormFirst {
		r.norm.forward(c, dst, dst)
	}
}

func (r *mamba2) scratch(rows int) int {
	n := floats(rows, r.in.out) + floats(rows, r.channels()) + 2*floats(rows, r.inner)
	if orOne(r.spec.InScale) != 1 {
		n += floats(rows, r.width)
	}
	return n
}

func (r *mamba2) cols() int { return r.out.cols() }
