package nn

import "github.com/heftai/heft/internal/tensor"

// adapter compiles a Sequential of the checkpoint whose result is added to that of a linear
// layer. It returns nil if name is "".
func (c *compiler) adapter(n Node, name string, in, out int) (rule, error) {
	if name == "" {
		return nil, nil
	}
	child, err := c.child(n, "adapter", name)
	if err != nil {
		return nil, err
	}
	r, err := c.rule(child, in)
	if err == nil && r.cols() != out {
		err = at(child.Path, "an adapter of width %d, wanted %d", r.cols(), out)
	}
	return r, err
}

// addRule adds the result of r for x to dst. A nil r adds nothing.
func (c *Context) addRule(r rule, dst, x tensor.Tensor) {
	if r == nil {
		return
	}
	mark := c.arena.used
	y := c.arena.passing(x.Rows(), r.cols())
	r.forward(c, y, x)
	c.add(dst, y, 1)
	c.arena.used = mark
}

// addedScratch returns the scratch memory of addRule.
func addedScratch(r rule, rows int) int {
	if r == nil {
		return 0
	}
	return floats(rows, r.cols()) + r.scratch(rows)
}
