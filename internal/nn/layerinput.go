package nn

import (
	"fmt"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// perLayer computes a vector for each token and block, before the first block.
type perLayer struct {
	spec       *meta.PerLayerSpec
	embed      *embedding
	projection *linear
	norm       *norm
	width      int // width of all vectors of a token
	nodes      []Node
}

func (c *compiler) perLayer(n Node, s *meta.PerLayerSpec, hidden int) (p *perLayer, err error) {
	p = &perLayer{spec: s, width: s.Layers * s.Width}
	for _, name := range []string{s.Embed, s.Projection, s.Norm} {
		node, err := c.child(n, "part of the layers' inputs", name)
		if err != nil {
			return nil, err
		}
		p.nodes = append(p.nodes, node)
	}
	if p.embed, err = c.embedding(p.nodes[0]); err == nil {
		p.embed.number = -1 // its rows are not rows of the pass, so adapters cannot replace it
	} else {
		return nil, err
	}
	if p.embed.dim != p.width {
		return nil, at(p.nodes[0].Path, "an embedding of %d for %d layers of %d", p.embed.dim, s.Layers, s.Width)
	}
	if p.projection, err = c.linearNamed(n, "projection of the layers' inputs", s.Projection, hidden, p.width); err != nil {
		return nil, err
	}
	p.norm, err = c.norm(p.nodes[2], p.width)
	c.program.perLayer = p.width
	c.together("inputs by layer")
	return p, err
}

// forward computes the vectors from hidden, the hidden states before the first block.
func (p *perLayer) forward(c *Context, hidden tensor.Tensor) {
	mark := c.arena.used
	c.inputs = matrix(c.input, c.rows, p.width)
	p.projection.forward(c, c.inputs, hidden)
	c.scale(c.inputs, p.spec.Factor)
	if c.err == nil {
		p.norm.forward(c, c.inputs, c.inputs)
	}
	rows := c.limits.tile(c.rows)
	tokens := c.arena.take(rows, p.width)
	for begin := 0; begin < c.rows && c.err == nil; begin += rows {
		end := min(begin+rows, c.rows)
		part := tokens.Slice(0, end-begin)
		p.embed.lookup(c, part, c.clip(c.in.Tokens[begin:end], p.spec.Rows), p.spec.EmbedScale, "token")
		c.add(c.inputs.Slice(begin, end), part, 1)
	}
	c.scale(c.inputs, p.spec.Scale)
	c.arena.used = mark
}

func (p *perLayer) scratch(l Limits) int {
	if p == nil {
		return 0
	}
	return floats(l.tile(l.Rows), p.width)
}

// layerInput is the branch of a block that adds its vector of perLayer.
type layerInput struct {
	spec             *meta.LayerInputSpec
	gate, projection *linear
	norm             *norm
}

func (c *compiler) layerInput(n Node, s *meta.LayerInputSpec, width int) (l *layerInput, err error) {
	if (s.Index+1)*s.Width > c.program.perLayer {
		return nil, at(n.Path, "input %d of width %d, of %d in all", s.Index, s.Width, c.program.perLayer)
	}
	l = &layerInput{spec: s}
	if l.gate, err = c.linearNamed(n, "gate of the layer's input", s.Gate, width, s.Width); err != nil {
		return nil, err
	}
	if l.projection, err = c.linearNamed(n, "projection of the layer's input", s.Projection, s.Width, width); err != nil {
		return nil, err
	}
	l.norm, err = c.normNamed(n, "norm of the layer's input", s.Norm, width)
	return l, err
}

// addTo adds the result of the branch for x to x.
func (l *layerInput) addTo(c *Context, x tensor.Tensor) {
	mark := c.arena.used
	y := c.arena.take(x.Rows(), x.Cols())
	l.branch(c, y, x)
	c.add(x, y, 1)
	c.arena.used = mark
}

// branch computes the result of the branch for x.
func (l *layerInput) branch(c *Context, y, x tensor.Tensor) {
	mark := c.arena.used
	gate := c.arena.take(x.Rows(), l.spec.Width)
	l.gate.forward(c, gate, x)
	if c.err == nil {
		from := l.spec.Index * l.spec.Width
		c.backend.Gate(gate, gate, c.inputs.Columns(from, from+l.spec.Width), l.spec.Act, 0)
	}
	l.projection.forward(c, y, gate)
	if l.norm != nil && c.err == nil {
		l.norm.forward(c, y, y)
	}
	c.arena.used = mark
}

func (l *layerInput) scratch(rows int) int {
	if l == nil {
		return 0
	}
	return floats(rows, l.spec.Width) + floats(rows, l.gate.in)
}

// finish computes the parts of a block that follow its branches.
func (b *block) finish(c *Context, x tensor.Tensor) {
	if b.input != nil {
		b.input.addTo(c, x)
	}
	if b.scalar == nil || c.err != nil {
		return
	}
	var by [1]float32
	if err := c.readNumber(by[:], c.weights.Buffer(b.scalar)); err != nil {
		c.fail("%s: %w", meta.Join(b.path, b.scalar.Name), err)
	}
	c.scale(x, by[0])
}

// readNumber reads a tensor of one value, which may be in a device's memory.
func (c *Context) readNumber(to []float32, t tensor.Tensor) error {
	if t.Elements() != 1 {
		return fmt.Errorf("got a tensor of shape %v, want one number", t.Shape())
	}
	return c.read(to, t, c.number[:])
}
