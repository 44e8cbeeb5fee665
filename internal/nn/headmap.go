package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// headMap is a linear layer per head, stored as a stack of matrices.
type headMap struct {
	weight, bias param
	of           *linear // the layer of one head, as the backend sees it
}

// headMap compiles the layers of the given number of heads. Their matrices are [in, out] if
// transposed is set. The bias may be missing.
func (c *compiler) headMap(n Node, weight, bias string, heads, in, out int, transposed bool) (m headMap, err error) {
	rows, cols := out, in
	if transposed {
		rows, cols = in, out
	}
	if m.weight, err = c.param(n, weight, heads, rows, cols); err != nil {
		return m, err
	}
	if bias != "" {
		if m.bias, err = c.param(n, bias, heads, out); err != nil {
			return m, err
		}
		c.widens(heads * out)
	}
	m.of = &linear{path: m.weight.path, weight: m.weight, transposed: transposed, in: in, out: out}
	c.multiplies(m.of)
	return m, nil
}

// forward sets dst to the result of head h's layer for x.
func (m *headMap) forward(c scope, h int, dst, x tensor.Tensor) {
	w, bias := m.matrix(c, h)
	if c.err != nil {
		return
	}
	a := boundLinear{linear: m.of}
	a.product(c, dst, x, w, bias)
}

// alternating computes the even outputs of head h's layer for x into even, and the odd ones into
// odd. There is no bias.
func (m *headMap) alternating(c scope, h int, even, odd, x tensor.Tensor) {
	w, _ := m.matrix(c, h)
	if c.err != nil {
		return
	}
	a := boundLinear{linear: m.of}
	for first, dst := range [...]tensor.Tensor{even, odd} {
		part := rowsOf(w, first, m.of.out)
		part.RowStep = 2
		a.product(c, dst, x, part, tensor.Tensor{})
	}
}

// matrix returns the weight of head h and its bias.
func (m *headMap) matrix(c scope, h int) (w backend.Matrix, bias tensor.Tensor) {
	weights, bias := c.vector(m.weight), c.vector(m.bias)
	if c.err != nil {
		return w, bias
	}
	size := m.of.in * m.of.out
	w = backend.Matrix{Tensor: weights.Slice(h*size, (h+1)*size), Transposed: m.of.transposed}
	if w.Rank, w.Dims = 2, [...]int{m.of.out, m.of.in, 0, 0}; m.of.transposed {
		w.Dims = [...]int{m.of.in, m.of.out, 0, 0}
	}
	if !bias.IsZero() {
		bias = bias.Slice(h*m.of.out, (h+1)*m.of.out)
	}
	return w, bias
}
