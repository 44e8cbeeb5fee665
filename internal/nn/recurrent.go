package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// state assigns the state of index i, with the given number of elements, to a module.
func (c *compiler) state(path string, i, elements int) error {
	const most = 1 << 16
	if i < 0 || i >= most || elements < 1 {
		return at(path, "state %d of %d elements", i, elements)
	}
	if other, taken := c.states[i]; taken {
		return at(path, "state %d is that of %s", i, other)
	}
	c.states[i] = path
	if missing := i + 1 - len(c.program.states); missing > 0 {
		c.program.states = append(c.program.states, make([]int, missing)...)
	}
	c.program.states[i] = elements
	c.held = append(c.held, i)
	return nil
}

// recurrent returns the backend's operations with states. It fails the pass and returns nil if
// the backend has none.
func (c *Context) recurrent(path string) backend.Recurrent {
	r, ok := c.backend.(backend.Recurrent)
	if !ok {
		c.fail("%s: a layer with a state cannot run on this backend", path)
	}
	if !ok || c.err != nil {
		return nil
	}
	return r
}

// states returns the states of layer i, by its index for the first run of its block, from element first on.
func (c *Context) states(i, first int) backend.States {
	return backend.States{Memory: c.in.States[i+c.run.states], First: first, Spans: c.in.StateSpans}
}

// A convolution has a kernel per channel.
type convolution struct {
	weight, bias param
	kernel       int
}

func (c *compiler) convolution(n Node, name string, channels, kernel int) (v convolution, err error) {
	child, err := c.child(n, "convolution", name)
	if err != nil {
		return v, err
	}
	v.kernel = kernel
	if v.weight, err = c.param(child, "weight", channels, 1, kernel); err != nil {
		return v, err
	}
	c.program.asked.taps = max(c.program.asked.taps, kernel)
	c.widens(channels * kernel)
	v.bias, err = c.optional(child, "bias", channels)
	return v, err
}

// channels computes dst from x, the channels from first on. Their state begins at element
// first·(kernel-1) of the layer's state.
func (v *convolution) channels(c *Context, dst, x tensor.Tensor, state, first int, act meta.Activation) {
	if parts := c.parts(v.weight, -1); c.err == nil && len(parts) > 1 {
		v.inParts(c, dst, x, state, first, act, parts)
		return
	}
	weight, bias := c.vector(v.weight), c.vector(v.bias)
	if c.err != nil {
		return
	}
	r := c.recurrent(v.weight.path)
	if r == nil {
		return
	}
	last := first + x.Cols()
	if !bias.IsZero() {
		bias = bias.Slice(first, last)
	}
	r.ShortConv(dst, x, weight.Slice(first*v.kernel, last*v.kernel), bias, c.states(state, first*(v.kernel-1)), act)
}

// inParts is channels for kernels that are stored in parts of whole channels. x has all channels.
func (v *convolution) inParts(c *Context, dst, x tensor.Tensor, state, first int, act meta.Activation, parts []backend.Part) {
	if first != 0 || v.bias.Param != nil {
		c.fail("%s: %d pieces, wanted one", v.weight.path, len(parts))
		return
	}
	r := c.recurrent(v.weight.path)
	if r == nil {
		return
	}
	for i := range parts {
		begin, end := parts[i].Into.Begin, parts[i].Into.End
		weight, ok := flat(parts[i].Matrix)
		if !ok || weight.Elements() != (end-begin)*v.kernel || end > x.Cols() {
			c.fail("%s: piece %d of shape %v, wanted kernels of %d tokens for %d channels", v.weight.path, i, parts[i].Shape(), v.kernel, end-begin)
			return
		}
		r.ShortConv(dst.Columns(begin, end), x.Columns(begin, end), weight, tensor.Tensor{}, c.states(state, begin*(v.kernel-1)), act)
	}
}

// shortConv is out(c · conv(b · x)), where in computes b, c and x.
type shortConv struct {
	path    string
	spec    *meta.ShortConvSpec
	in, out *linear
	conv    convolution
}

func (c *compiler) shortConv(n Node, in int) (rule, error) {
	s, err := spec[meta.ShortConvSpec](n, meta.KindShortConv)
	if err != nil {
		return nil, err
	}
	if s.Width < 1 || s.Kernel < 2 {
		return nil, at(n.Path, "a convolution of %d channels over %d tokens", s.Width, s.Kernel)
	}
	r := &shortConv{path: n.Path, spec: s}
	if r.in, err = c.linearNamed(n, "input", s.In, in, 3*s.Width); err != nil {
		return nil, err
	}
	if r.out, err = c.linearNamed(n, "output", s.Out, s.Width, 0); err != nil {
		return nil, err
	}
	if r.conv, err = c.convolution(n, s.Conv, s.Width, s.Kernel); err != nil {
		return nil, err
	}
	return r, c.state(n.Path, s.State, (s.Kernel-1)*s.Width)
}

func (r *shortConv) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	width := r.spec.Width
	all, y := c.arena.take(x.Rows(), 3*width), c.arena.take(x.Rows(), width)
	r.in.forward(c, all, x)
	if c.err == nil {
		b, gate, in := all.Columns(0, width), all.Columns(width, 2*width), all.Columns(2*width, 3*width)
		c.backend.Gate(b, b, in, meta.ActNone, 0)
		r.conv.channels(c, y, b, r.spec.State, 0, meta.ActNone)
		c.backend.Gate(y, y, gate, meta.ActNone, 0)
	}
	r.out.forward(c, dst, y)
	c.arena.used = mark
}

func (r *shortConv) scratch(rows int) int {
	return floats(rows, 3*r.spec.Width) + floats(rows, r.spec.Width)
}

func (r *shortConv) cols() int { return r.out.cols() }
