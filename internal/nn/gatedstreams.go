package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// gatedMixer weighs each channel of the streams by a low-rank projection of all of them. The
// inputs of its layers are not rounded, because that would change all streams.
type gatedMixer struct {
	path             string
	count            int
	norm             *norm
	inject, down, up *linear // inject is nil if nothing is added to the streams
}

func (c *compiler) gatedMixer(child Node, s *meta.StreamsSpec, width int, alone bool) (m *gatedMixer, err error) {
	m = &gatedMixer{path: child.Path, count: s.Count}
	if m.norm, err = c.normNamed(child, "norm of the streams", s.Norm, width); err != nil {
		return nil, err
	}
	if m.norm == nil || m.norm.each != nil {
		return nil, at(child.Path, "gated streams without a norm of all")
	}
	m.norm.number = 0
	if !alone {
		if m.inject, err = c.streamMap(child, s.Inject, width, s.Count, true); err != nil {
			return nil, err
		}
	}
	if m.down, err = c.streamMap(child, s.Down, width, 0, !alone); err != nil {
		return nil, err
	}
	m.up, err = c.streamMap(child, s.Up, m.down.out, width, !alone)
	return m, err
}

// streamMap compiles a linear layer of a gatedMixer. once is set if a pass uses it once.
func (c *compiler) streamMap(n Node, name string, in, out int, once bool) (*linear, error) {
	r, err := c.linearNamed(n, "map of the streams", name, in, out)
	if err != nil {
		return nil, err
	}
	if r.exact = true; !once {
		c.needWhole(r)
	}
	return r, nil
}

// mix sets dst to the stream that the mixer computes from flat, the normalised streams.
func (m *gatedMixer) mix(c scope, dst, flat tensor.Tensor) {
	mark := c.arena.used
	width, rows := m.channels(), flat.Rows()
	low, gates := c.arena.take(rows, m.down.out), c.arena.take(rows, m.width())
	m.down.compute(c, low, flat, 0)
	c.scale(low, 1/float32(m.count))
	c.gate(low, tensor.Tensor{}, meta.ActSiLU)
	m.up.compute(c, gates, low, 0)
	c.gate(gates, flat, meta.ActSigmoid)
	if c.err == nil {
		c.copyRows(dst, gates.Columns(0, width))
		for k := 1; k < m.count; k++ {
			c.backend.Add(dst, gates.Columns(k*width, (k+1)*width), 1)
		}
	}
	c.scale(dst, 1/float32(m.count))
	c.arena.used = mark
}

// gate sets x to act(x)·up, or to act(x) if up is zero.
func (c *Context) gate(x, up tensor.Tensor, act meta.Activation) {
	if c.err == nil {
		c.backend.Gate(x, x, up, act, 0)
	}
}

func (m *gatedMixer) collapse(c scope, dst, x tensor.Tensor) {
	mark := c.arena.used
	flat := c.arena.take(x.Rows(), m.width())
	m.norm.compute(c, flat, x)
	m.mix(c, dst, flat)
	c.arena.used = mark
}

func (m *gatedMixer) through(c *Context, branch *branch, x tensor.Tensor) {
	b, ok := c.backend.(backend.Streams)
	if !ok {
		c.fail("%s: hyper-connections cannot be trained or run on this backend", m.path)
		return
	}
	mark := c.arena.used
	rows := x.Rows()
	y, in, weights := c.arena.take(rows, m.channels()), c.arena.take(rows, m.channels()), c.arena.take(rows, 2*m.count)
	within := c.arena.used
	flat := c.arena.take(rows, m.width())
	m.norm.forward(c, flat, x)
	post := weights.Columns(m.count, 2*m.count)
	m.inject.forward(c, post, flat)
	c.scale(post, 1/float32(m.count))
	c.gate(post, tensor.Tensor{}, meta.ActSigmoid)
	c.scale(post, 2)
	m.mix(c.all(), in, flat)
	c.arena.used = within
	branch.forward(c, y, in, false)
	if c.err == nil {
		b.ExpandStreams(x, y, weights, backend.StreamArgs{Count: m.count, Independent: true})
	}
	c.arena.used = mark
}

func (m *gatedMixer) scratch(rows int) int {
	return 2*floats(rows, m.width()) + floats(rows, m.down.out)
}

func (m *gatedMixer) around(rows, branch int) int {
	return 2*floats(rows, m.channels()) + floats(rows, 2*m.count) + max(m.scratch(rows), branch)
}

func (m *gatedMixer) width() int    { return m.norm.width }
func (m *gatedMixer) channels() int { return m.norm.width / m.count }
