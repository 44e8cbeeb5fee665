package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// product is one operation of an affine map, or one for each run of rows of the same
// role where the pass tells roles apart.
func (a *affine) product(c *Context, dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
	if a.exact || c.in.Prompts == nil {
		c.backend.Linear(dst, x, w, bias)
		return
	}
	rows := x.Rows()
	for begin := 0; begin < rows; {
		role, end := c.role(begin), begin+1
		for end < rows && c.role(end) == role {
			end++
		}
		c.backend.LinearRounded(dst.Slice(begin, end), x.Slice(begin, end), w, bias, role)
		begin = end
	}
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
