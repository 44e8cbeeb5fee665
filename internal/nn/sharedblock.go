package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// embedded is the part of a block whose input rows hold the hidden states followed by the
// embeddings, with twice as many channels.
type embedded struct {
	hidden int
	shared *sharedBlock // nil if there is none
}

// sharedBlock computes the term that is added to the input of the only branch of a block; see
// meta.SharedBlockSpec.
type sharedBlock struct {
	norm, mlpNorm  *norm
	attention, mlp rule
	out            *linear
}

// embedded compiles the parts of a block whose rows have in channels.
func (c *compiler) embedded(n Node, s *meta.BlockSpec, in int) (b *embedded, err error) {
	switch {
	case in != 2*c.program.streamWidth:
		return nil, at(n.Path, "a block with embeddings after the hidden states, in a width of %d without them", in)
	case s.Attention == "" || s.MLP != "" || s.Plain != nil || s.Parallel || s.NormSums || s.NormedResidual || s.Streams != nil || s.AltUp != nil || s.Input != nil || s.Scalar != "" || orOne(s.ResidualScale) != 1:
		return nil, at(n.Path, "embeddings after the hidden states, in a block of another form than one branch")
	}
	b = &embedded{hidden: in / 2}
	if s.Shared != nil {
		b.shared, err = c.sharedBlock(n, s.Shared, in)
	}
	return b, err
}

// behind returns the width of rows with what stands behind hidden states of the given width. It appends
// the node that has the first of it.
func (c *compiler) behind(n Node, s *meta.CausalLMSpec, step *embedStep, width int, nodes *[]Node) (int, error) {
	if s.KeepsEmbeddings {
		c.program.streamWidth = width / 2
		c.together("embeddings after hidden states")
	}
	if step.carry = s.Carry; s.Carry > 0 {
		if c.program.streamWidth = width; width != step.tokens.dim {
			return 0, at(n.Path, "%d channels that blocks hand on behind other parts of embeddings", s.Carry)
		}
		c.together("channels that blocks hand on")
	}
	return width + s.Carry, c.carryStart(n, s, step, nodes)
}

func (c *compiler) sharedBlock(n Node, s *meta.SharedBlockSpec, in int) (l *sharedBlock, err error) {
	l = &sharedBlock{}
	if l.norm, err = c.normNamed(n, "norm of hidden states and embeddings", s.Norm, in); err != nil {
		return nil, err
	}
	for _, r := range [...]struct {
		to         *rule
		role, name string
		norm       **norm
		normName   string
	}{{&l.attention, "attention", s.Attention, nil, ""}, {&l.mlp, "mlp", s.MLP, &l.mlpNorm, s.MLPNorm}} {
		if r.norm != nil {
			if *r.norm, err = c.normNamed(n, "norm before the "+r.role, r.normName, in); err != nil {
				return nil, err
			}
		}
		child, err := c.child(n, r.role, r.name)
		if err != nil {
			return nil, err
		}
		if *r.to, err = c.rule(child, in); err != nil {
			return nil, err
		}
		in = (*r.to).cols()
	}
	l.out, err = c.linearNamed(n, "output", s.Out, in, c.program.streamWidth)
	return l, err
}

// residual returns the hidden states of x, without the embeddings that follow them.
func (c *Context) residual(x tensor.Tensor) tensor.Tensor {
	if c.program.streamWidth == 0 {
		return x
	}
	return columns(x, 0, c.program.streamWidth)
}

// through computes x = block(x) for rows of hidden states and embeddings.
func (b *embedded) through(c *Context, of *block, x tensor.Tensor) {
	mark := c.arena.used
	stream, y := columns(x, 0, b.hidden), c.arena.passing(x.Rows(), b.hidden)
	operand := stream
	if b.shared != nil {
		operand = c.arena.take(x.Rows(), b.hidden)
		b.shared.forward(c, operand, x)
		c.add(operand, stream, 1)
	}
	of.attention.forward(c, y, operand, false)
	c.add(stream, y, 1)
	c.arena.used = mark
}

// forward sets dst to the result of the layers for x, the hidden states and embeddings.
func (l *sharedBlock) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	rows := x.Rows()
	normed, attended := c.arena.passing(rows, x.Cols()), c.arena.take(rows, l.attention.cols())
	if l.norm != nil && c.err == nil {
		l.norm.forward(c, normed, x)
		x = normed
	}
	l.attention.forward(c, attended, x)
	if l.mlpNorm != nil && c.err == nil {
		y := c.arena.passing(rows, attended.Cols())
		l.mlpNorm.forward(c, y, attended)
		attended = y
	}
	result := c.arena.take(rows, l.mlp.cols())
	l.mlp.forward(c, result, attended)
	l.out.forward(c, dst, result)
	c.arena.used = mark
}

// scratch returns the scratch memory for block of.
func (b *embedded) scratch(of *block, rows int) int {
	n := of.attention.scratch(rows)
	if l := b.shared; l != nil {
		within := max(l.attention.scratch(rows), floats(rows, l.attention.cols())+floats(rows, l.mlp.cols())+l.mlp.scratch(rows))
		n = floats(rows, b.hidden) + max(n, floats(rows, 2*b.hidden)+floats(rows, l.attention.cols())+within)
	}
	return floats(rows, b.hidden) + n
}
