package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// product is one product of an affine map, or one for each run of rows of the same role where
// the pass tells roles apart.
func (a *affine) product(c *Context, dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
	if a.exact || c.in.Prompts == nil {
		c.product(backend.Product{Dst: dst, X: x, W: w, Bias: bias})
		return
	}
	rows := x.Rows()
	for begin := 0; begin < rows; {
		role, end := c.role(begin), begin+1
		for end < rows && c.role(end) == role {
			end++
		}
		c.product(backend.Product{Dst: dst.Slice(begin, end), X: x.Slice(begin, end), W: w, Bias: bias, Rounded: true, Role: role})
		begin = end
	}
}

// collect lets products wait, which do not wait for one another, until compute does all at once.
func (c *Context) collect() { c.collecting = true }

// product computes p, or lets it wait.
func (c *Context) product(p backend.Product) {
	c.products = append(c.products, p)
	if !c.collecting {
		c.computeWaiting()
	}
}

// compute does what has been collected.
func (c *Context) compute() {
	c.computeWaiting()
	c.collecting = false
}

// computeWaiting does what has been collected so far.
func (c *Context) computeWaiting() {
	if len(c.products) > 0 && c.err == nil {
		c.backend.Products(c.products)
	}
	c.products = c.products[:0]
}

// role is that of row i of what a rule computes now.
func (c *Context) role(i int) backend.Role {
	if c.subset != nil {
		i = int(c.subset[i])
	}
	if c.in.Prompts[i] {
		return backend.Prompt
	}
	return backend.Generated
}
