package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// product computes one product of a linear layer, or one for each run of rows of equal role if
// the pass distinguishes roles.
func (a *boundLinear) product(c scope, dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
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

// A scope determines how linear layers compute: on which rows of the pass, and immediately or
// batched. Rules pass it by value, so that it ends with the rule that created it.
type scope struct {
	*Context
	gathered []int32 // rows of the pass that form x; nil means all
	collects bool    // products are deferred until compute
	unread   bool    // nothing reads the results of products
}

// all returns the scope of all rows of the pass, without deferral.
func (c *Context) all() scope { return scope{Context: c} }

// at returns the scope of rows that a rule has gathered from the pass.
func (s scope) at(rows []int32) scope {
	s.gathered = rows
	return s
}

// collect defers independent products until compute runs all of them as one operation.
func (c *Context) collect() scope { return scope{Context: c, collects: true} }

// product computes p or defers it.
func (s scope) product(p backend.Product) {
	p.Unread = s.unread
	s.products = append(s.products, p)
	if !s.collects {
		s.compute()
	}
}

// compute runs the deferred products.
func (c *Context) compute() {
	if len(c.products) > 0 && c.err == nil {
		c.backend.Products(c.products)
	}
	c.products = c.products[:0]
}

// role returns the role of row i of the scope.
func (s scope) role(i int) backend.Role {
	if s.gathered != nil {
		i = int(s.gathered[i])
	}
	if s.in.Prompts[i] {
		return backend.Prompt
	}
	return backend.Generated
}
