package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// sequentialUnits creates a unit for each child of a Sequential at the root.
func (c *compiler) sequentialUnits(root *meta.Module) error {
	if len(root.Children) == 0 {
		return at("", "a Sequential without children")
	}
	in := 0
	for _, child := range root.Children {
		out, err := c.ruleUnit(Node{child.Name, child.Resolve()}, in)
		if err != nil {
			return err
		}
		in = out
	}
	return nil
}

// ruleUnit creates a unit of one module and returns the width of its result. in is 0 for the
// first unit.
func (c *compiler) ruleUnit(n Node, in int) (out int, err error) {
	if n.Module.Kind == meta.KindEmbedding && in == 0 {
		e, err := c.embedding(n)
		if err != nil {
			return 0, err
		}
		c.widen(e.dim)
		c.unit(&embedStep{tokens: e, scale: 1}, n)
		return e.dim, nil
	}
	if in == 0 {
		if in = inWidth(n.Module); in < 1 {
			return 0, at(n.Path, "the width of the input cannot be told from a %s of kind %v", n.Module.Class, n.Module.Kind)
		}
		c.widen(in)
	}
	r, err := c.rule(n, in)
	if err != nil {
		return 0, err
	}
	c.widen(r.cols())
	if _, ok := r.(*block); !ok {
		c.program.moves = true
	}
	c.unit(&ruleStep{rule: r, in: in, path: n.Path}, n)
	return r.cols(), nil
}

// inWidth returns the input width of a module, or 0 if only its context determines it.
func inWidth(m *meta.Module) int {
	switch s := m.Spec.(type) {
	case *meta.LinearSpec:
		return s.In
	case *meta.NormSpec:
		return s.Dim
	case *meta.MLPSpec:
		for _, name := range []string{s.Fused, s.Up} {
			if child := m.Child(name); child != nil {
				return inWidth(child.Resolve())
			}
		}
	case *meta.AttentionSpec:
		for _, name := range []string{s.Fused, s.Q} {
			if child := m.Child(name); child != nil {
				return inWidth(child.Resolve())
			}
		}
	case *meta.BlockSpec:
		for _, name := range []string{s.AttentionNorm, s.Attention} {
			if child := m.Child(name); child != nil {
				return inWidth(child.Resolve())
			}
		}
	}
	if m.Kind == meta.KindSequential {
		for _, child := range m.Children {
			if w := inWidth(child.Resolve()); w != 0 {
				return w
			}
		}
	}
	return 0
}

// ruleStep runs a rule on the hidden state.
type ruleStep struct {
	rule rule
	in   int
	path string
	turn *run // nil for a block that a pass runs once
}

func (s *ruleStep) run(c *Context) {
	if c.hidden.Rank != 2 || c.hidden.Cols() != s.in {
		c.fail("%s: input of shape %v, wanted %d columns", s.path, c.hidden.Shape(), s.in)
		return
	}
	s.turn.begin(c, c.hidden)
	if b, ok := s.rule.(*block); ok {
		b.inPlace(c, c.hidden)
		s.turn.end(c, c.hidden)
	} else {
		next := matrix(c.state[1], c.rows, s.rule.cols())
		s.rule.forward(c, next, c.hidden)
		c.state[0], c.state[1], c.hidden = c.state[1], c.state[0], next
	}
	c.trace(PointLayer, s.path, c.residual(c.hidden))
}

func (s *ruleStep) scratch(l Limits) int {
	if b, ok := s.rule.(*block); ok {
		return max(b.tiledScratch(l), s.turn.scratch(l))
	}
	return s.rule.scratch(l.Rows)
}

// sequential runs rules one after another.
type sequential struct {
	rules []rule
	width int // the widest intermediate result
}

func (c *compiler) sequential(n Node, in int) (*sequential, error) {
	s := &sequential{}
	for _, child := range n.Module.Children {
		r, err := c.rule(Node{meta.Join(n.Path, child.Name), child.Resolve()}, in)
		if err != nil {
			return nil, err
		}
		s.rules = append(s.rules, r)
		in = r.cols()
		s.width = max(s.width, in)
	}
	if len(s.rules) == 0 {
		return nil, at(n.Path, "a Sequential without children")
	}
	return s, nil
}

func (s *sequential) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	a, b := c.arena.take(x.Rows(), s.width), c.arena.take(x.Rows(), s.width)
	for i, r := range s.rules {
		y := dst
		if i < len(s.rules)-1 {
			y = matrix(a, x.Rows(), r.cols())
		}
		r.forward(c, y, x)
		x, a, b = y, b, a
	}
	c.arena.used = mark
}

func (s *sequential) scratch(rows int) int {
	most := 0
	for _, r := range s.rules {
		most = max(most, r.scratch(rows))
	}
	return 2*floats(rows, s.width) + most
}

func (s *sequential) cols() int { return s.rules[len(s.rules)-1].cols() }

// identity is a module without parameters that does nothing, such as dropout.
type identity struct{ width int }

func (r identity) forward(c *Context, dst, x tensor.Tensor) { c.copyRows(dst, x) }
func (r identity) scratch(int) int                          { return 0 }
func (r identity) cols() int                                { return r.width }

// copyRows copies x to dst.
func (c *Context) copyRows(dst, x tensor.Tensor) {
	c.backend.Gather(dst, x, c.iota[:x.Rows()])
}
