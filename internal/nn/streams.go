package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A mixer merges several residual streams into one, and may add a branch's result for the merged
// stream to all streams (hyper-connections).
type mixer interface {
	// collapse sets dst to the merged stream of x.
	collapse(c scope, dst, x tensor.Tensor)
	// through computes a branch of the streams x and updates x.
	through(c *Context, branch *branch, x tensor.Tensor)
	// scratch returns the scratch memory of collapse. around returns that of through for a branch
	// that takes the given number of floats.
	scratch(rows int) int
	around(rows, branch int) int
	// width returns the channels of all streams; channels returns those of one stream.
	width() int
	channels() int
}

// mixer compiles the child that a spec names, whose parameters begin with prefix. If alone is
// set, it only has weights for the input of a branch.
func (c *compiler) mixer(n Node, s *meta.StreamsSpec, name, prefix string, width int, alone bool) (mixer, error) {
	child, err := c.child(n, "weights of streams", name)
	if err != nil {
		return nil, err
	}
	if s.Count < 1 || width%s.Count != 0 || s.Iterations < 1 && !s.Independent && !s.Gated {
		return nil, at(child.Path, "%d streams in a width of %d, with %d iterations", s.Count, width, s.Iterations)
	}
	c.together("hyper-connections")
	if s.Gated {
		return c.gatedMixer(child, s, width, alone)
	}
	return c.weightedMixer(child, s, prefix, width, alone)
}

// weightedMixer computes a weight per stream from all streams of a row.
type weightedMixer struct {
	path        string
	args        backend.StreamArgs
	norm        *norm // without weights
	fn          *linear
	base, scale param
	hidden      int // channels of one stream
}

func (c *compiler) weightedMixer(child Node, s *meta.StreamsSpec, prefix string, width int, alone bool) (m *weightedMixer, err error) {
	m = &weightedMixer{
		path: child.Path, args: backend.StreamArgs{Count: s.Count, Iterations: s.Iterations, Independent: s.Independent, Eps: s.Eps, Magnitude: s.Magnitude}, hidden: width / s.Count,
	}
	if m.norm, err = c.normNamed(child, "norm of the streams", s.Norm, width); err != nil {
		return nil, err
	}
	out, scales := (2+s.Count)*s.Count, 3
	switch {
	case alone:
		out, scales = s.Count, 1
	case s.Independent:
		out, scales = 2*s.Count, 2
	}
	m.fn = &linear{path: child.Path, in: width, out: out, exact: true} // rounding would change all streams
	if m.fn.weight, err = c.param(child, prefix+"fn", out, width); err != nil {
		return nil, err
	}
	c.multiplies(m.fn)
	c.keeps(width)
	if m.base, err = c.param(child, prefix+"base", out); err != nil {
		return nil, err
	}
	m.scale, err = c.param(child, prefix+"scale", scales)
	return m, err
}

// weigh returns the weights of each row of x, allocated from the arena, and the backend's
// operations. b is nil if the pass has failed.
func (m *weightedMixer) weigh(c *Context, x tensor.Tensor) (weights tensor.Tensor, b backend.Streams) {
	weights = c.arena.take(x.Rows(), m.fn.out)
	mark := c.arena.used
	flat := c.arena.take(x.Rows(), m.norm.width)
	m.norm.forward(c, flat, x)
	m.fn.forward(c, weights, flat)
	c.arena.used = mark
	base, scale := c.vector(m.base), c.vector(m.scale)
	b, ok := c.backend.(backend.Streams)
	if !ok {
		c.fail("%s: hyper-connections cannot be trained or run on this backend", m.path)
	}
	if c.err != nil {
		return weights, nil
	}
	b.StreamWeights(weights, base, scale, m.args)
	return weights, b
}

func (m *weightedMixer) collapse(c scope, dst, x tensor.Tensor) {
	mark := c.arena.used
	if weights, b := m.weigh(c.Context, x); b != nil {
		b.CollapseStreams(dst, x, weights, m.args)
	}
	c.arena.used = mark
}

func (m *weightedMixer) scratch(rows int) int {
	return floats(rows, m.fn.out) + floats(rows, m.norm.width)
}

func (m *weightedMixer) width() int    { return m.norm.width }
func (m *weightedMixer) channels() int { return m.hidden }

// blockStreams mix the streams of a block before and after its branches.
type blockStreams struct{ attention, mlp mixer }

func (m *weightedMixer) through(c *Context, branch *branch, x tensor.Tensor) {
	mark := c.arena.used
	y := c.arena.take(x.Rows(), m.hidden)
	weights, b := m.weigh(c, x)
	if b != nil {
		in := c.arena.take(x.Rows(), m.hidden)
		b.CollapseStreams(in, x, weights, m.args)
		branch.forward(c, y, in, false)
	}
	if b != nil && c.err == nil {
		b.ExpandStreams(x, y, weights, m.args)
	}
	c.arena.used = mark
}

func (m *weightedMixer) around(rows, branch int) int {
	return floats(rows, m.hidden) + floats(rows, m.fn.out) + max(floats(rows, m.norm.width), floats(rows, m.hidden)+branch)
}
