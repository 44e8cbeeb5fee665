package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// shift provides the preceding token's value for each token, for a layer of hidden channels.
type shift struct {
	path  string
	state int
	first int // element of the state
	width int
	taps  []float32 // of a convolution over two tokens whose result is the first of them
}

func (c *compiler) shift(n Node, state, width int) *shift {
	s := &shift{path: n.Path, state: state, width: width, taps: make([]float32, 2*width)}
	for i := range width {
		s.taps[2*i] = 1
	}
	c.program.asked.taps = max(c.program.asked.taps, 2)
	c.widens(2 * width)
	return s
}

// differences returns the preceding tokens' values for x, and x minus these.
func (s *shift) differences(c *Context, x tensor.Tensor) (before, less tensor.Tensor) {
	before, less = c.arena.take(x.Rows(), s.width), c.arena.take(x.Rows(), s.width)
	if s.before(c, before, x); c.err == nil {
		c.copyRows(less, x)
		c.add(less, before, -1)
	}
	return before, less
}

// before sets dst to the tokens before those of x, 0 for the first.
func (s *shift) before(c *Context, dst, x tensor.Tensor) {
	if r := c.recurrent(s.path); r != nil {
		r.ShortConv(dst, x, tensor.Floats(s.taps, len(s.taps)), tensor.Tensor{}, c.states(s.state, s.first), meta.ActNone)
	}
}

// mixed returns m∘x + (1 - m)∘x' from the result of differences.
func (s *shift) mixed(c *Context, before, less tensor.Tensor, m param) tensor.Tensor {
	y := c.arena.take(before.Rows(), s.width)
	if c.repeatVector(y, m); c.err == nil {
		c.backend.Gate(y, y, less, meta.ActNone, 0)
		c.add(y, before, 1)
	}
	return y
}

// timeMix averages values by keys, see [meta.TimeMixSpec].
type timeMix struct {
	spec             *meta.TimeMixSpec
	shift            *shift
	k, v, r, out     *linear
	mixK, mixV, mixR param
	decay, first     param
}

func (c *compiler) timeMix(n Node, in int) (rule, error) {
	s, err := spec[meta.TimeMixSpec](n, meta.KindTimeMix)
	if err != nil {
		return nil, err
	}
	if s.Hidden != in || s.Width < 1 {
		return nil, at(n.Path, "%d channels of a stream of %d, want %d", s.Width, s.Hidden, in)
	}
	r := &timeMix{spec: s, shift: c.shift(n, s.State, in)}
	for _, l := range []struct {
		to      **linear
		name    string
		in, out int
	}{{&r.k, s.K, in, s.Width}, {&r.v, s.V, in, s.Width}, {&r.r, s.R, in, s.Width}, {&r.out, s.Out, s.Width, in}} {
		if *l.to, err = c.linearNamed(n, "map of a time mix", l.name, l.in, l.out); err != nil {
			return nil, err
		}
	}
	if err := c.mixes(n, in, mix{&r.mixK, s.MixK}, mix{&r.mixV, s.MixV}, mix{&r.mixR, s.MixR}); err != nil {
		return nil, err
	}
	if r.decay, err = c.param(n, s.Decay, s.Width); err != nil {
		return nil, err
	}
	if r.first, err = c.param(n, s.First, s.Width); err != nil {
		return nil, err
	}
	c.together("time and channel mixes")
	const channels = 64 // channels that the recurrence computes together
	c.keeps((1 + backend.WKVState) * channels)
	return r, c.state(n.Path, s.State, in+backend.WKVState*s.Width)
}

// mix is a parameter, by name, that mixes a token with the preceding one.
type mix struct {
	to   *param
	name string
}

func (c *compiler) mixes(n Node, width int, list ...mix) (err error) {
	for _, m := range list {
		if *m.to, err = c.param(n, m.name, 1, 1, width); err != nil {
			return err
		}
	}
	return nil
}

func (r *timeMix) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	before, less := r.shift.differences(c, x)
	k, v, gate, y := c.arena.take(rows, s.Width), c.arena.take(rows, s.Width), c.arena.take(rows, s.Width), c.arena.take(rows, s.Width)
	r.k.forward(c, k, r.shift.mixed(c, before, less, r.mixK))
	r.v.forward(c, v, r.shift.mixed(c, before, less, r.mixV))
	r.r.forward(c, gate, r.shift.mixed(c, before, less, r.mixR))
	decay, first := c.vector(r.decay), c.vector(r.first)
	op, ok := c.backend.(backend.KeyedAverages)
	if !ok {
		c.fail("%s: this backend has no keyed averages", r.shift.path)
	}
	if c.err == nil {
		op.WKV(y, backend.WKVInputs{K: k, V: v, Decay: decay, First: first}, c.states(s.State, s.Hidden), backend.WKVArgs{Channels: s.Width})
		c.backend.Gate(gate, gate, y, meta.ActSigmoid, 0)
	}
	r.out.forward(c, dst, gate)
	c.arena.used = mark
}

func (r *timeMix) scratch(rows int) int {
	return 5*floats(rows, r.spec.Hidden) + 4*floats(rows, r.spec.Width)
}

func (r *timeMix) cols() int { return r.out.cols() }

// channelMix is an MLP whose input includes the preceding token, see [meta.ChannelMixSpec].
type channelMix struct {
	spec       *meta.ChannelMixSpec
	shift      *shift
	k, v, r    *linear
	mixK, mixR param
}

func (c *compiler) channelMix(n Node, in int) (rule, error) {
	s, err := spec[meta.ChannelMixSpec](n, meta.KindChannelMix)
	if err != nil {
		return nil, err
	}
	if s.Hidden != in || s.Inner < 1 {
		return nil, at(n.Path, "%d channels of a stream of %d, want %d", s.Inner, s.Hidden, in)
	}
	r := &channelMix{spec: s, shift: c.shift(n, s.State, in)}
	if r.k, err = c.linearNamed(n, "keys", s.K, in, s.Inner); err != nil {
		return nil, err
	}
	if r.r, err = c.linearNamed(n, "receptance", s.R, in, in); err != nil {
		return nil, err
	}
	if r.v, err = c.linearNamed(n, "values", s.V, s.Inner, in); err != nil {
		return nil, err
	}
	if err := c.mixes(n, in, mix{&r.mixK, s.MixK}, mix{&r.mixR, s.MixR}); err != nil {
		return nil, err
	}
	return r, c.state(n.Path, s.State, in)
}

func (r *channelMix) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := r.spec, x.Rows()
	before, less := r.shift.differences(c, x)
	k, gate, y := c.arena.take(rows, s.Inner), c.arena.take(rows, s.Hidden), c.arena.take(rows, s.Hidden)
	r.k.forward(c, k, r.shift.mixed(c, before, less, r.mixK))
	r.r.forward(c, gate, r.shift.mixed(c, before, less, r.mixR))
	if c.err == nil {
		c.backend.Gate(k, k, tensor.Tensor{}, meta.ActReLU2, 0)
	}
	r.v.forward(c, y, k)
	if c.err == nil {
		c.backend.Gate(dst, gate, y, meta.ActSigmoid, 0)
	}
	c.arena.used = mark
}

func (r *channelMix) scratch(rows int) int {
	return 6*floats(rows, r.spec.Hidden) + floats(rows, r.spec.Inner)
}

func (r *channelMix) cols() int { return r.spec.Hidden }
