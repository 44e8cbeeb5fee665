package nn

import (
	"fmt"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// join computes the input of a module for multi-token prediction from embeddings and another
// model's hidden states.
type join struct {
	embeds, hidden *norm
	project        *linear
	width          int
	nodes          []Node
}

func (c *compiler) join(n Node, s *meta.JoinSpec, width int) (j *join, err error) {
	j = &join{width: width}
	for _, name := range []string{s.EmbedNorm, s.HiddenNorm, s.Project} {
		node, err := c.child(n, "part of what joins embeddings and hidden states", name)
		if err != nil {
			return nil, err
		}
		j.nodes = append(j.nodes, node)
	}
	if j.embeds, err = c.norm(j.nodes[0], width); err != nil {
		return nil, err
	}
	if j.hidden, err = c.norm(j.nodes[1], width); err != nil {
		return nil, err
	}
	if j.project, err = c.linear(j.nodes[2], 2*width); err == nil && j.project.out != width {
		err = at(j.nodes[2].Path, "a projection to %d channels, wanted %d", j.project.out, width)
	}
	c.program.joins = width
	c.together("hidden states of another model")
	return j, err
}

func (j *join) forward(c *Context) {
	mark := c.arena.used
	x := c.arena.take(c.rows, 2*j.width)
	if c.err == nil {
		j.embeds.forward(c, x.Columns(0, j.width), c.hidden)
		j.hidden.forward(c, x.Columns(j.width, 2*j.width), matrix(c.before, c.rows, j.width))
		j.project.forward(c, c.hidden, x)
	}
	c.arena.used = mark
}

func (j *join) scratch(l Limits) int {
	if j == nil {
		return 0
	}
	return floats(l.Rows, 2*j.width)
}

// join copies the hidden states of a pass to the context.
func (c *Context) join(before [][]float32) error {
	width, n := c.program.joins, 0
	for _, v := range before {
		n += len(v)
	}
	if n != c.rows*width {
		return fmt.Errorf("nn: input has %d values of hidden states before its rows, want %d rows of %d", n, c.rows, width)
	}
	for at := 0; n > 0 && len(before) > 0; before = before[1:] {
		v := before[0]
		if len(v)%width != 0 {
			return fmt.Errorf("nn: input has a slice of %d values of hidden states, want rows of %d", len(v), width)
		}
		rows := len(v) / width
		if err := c.backend.Copy(matrix(c.before, c.rows, width).Slice(at, at+rows), tensor.Floats(v, rows, width)); err != nil {
			return fmt.Errorf("nn: hidden states: %w", err)
		}
		at += rows
	}
	return nil
}
