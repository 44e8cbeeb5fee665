package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// product is one product of an affine map, or one for each run of rows of the same role where
// the pass tells roles apart.
func (a *affine) product(c scope, dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
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

// A scope is how linear maps compute: on which rows of the pass, and at once or with others. Rules
// hand it on as a value, so that it ends where the rule that made it ends.
type scope struct {
	*Context
	gathered []int32 // rows of the pass that x is made of; nil means all
	collects bool    // products wait for compute
}

// all computes on all rows of the pass, at once.
func (c *Context) all() scope { return scope{Context: c} }

// at computes on the rows of the pass that a rule has gathered.
func (s scope) at(rows []int32) scope {
	s.gathered = rows
	return s
}

// collect lets products that do not need one another's results wait until compute does all of them
// as one operation.
func (c *Context) collect() scope { return scope{Context: c, collects: true} }

// product computes p, or lets it wait.
func (s scope) product(p backend.Product) {
	s.products = append(s.products, p)
	if !s.collects {
		s.compute()
	}
}

// compute computes the products that wait.
func (c *Context) compute() {
	if len(c.products) > 0 && c.err == nil {
		c.backend.Products(c.products)
	}
	c.products = c.products[:0]
}

// role is that of row i of what a rule computes now.
func (s scope) role(i int) backend.Role {
	if s.gathered != nil {
		i = int(s.gathered[i])
	}
	if s.in.Prompts[i] {
		return backend.Prompt
	}
	return backend.Generated
}
