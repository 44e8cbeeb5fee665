package backendtest

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

func poolCase(e *env, a backend.PoolArgs) *stateCase {
	width := a.Series() * a.Dim
	return newStateCase(e, a.Rate*width, 1, a.Dim, 2*width)
}

// poolGradients returns the gradients of a case.
func poolGradients(g backend.Gradients, c *stateCase, a backend.PoolArgs) (dx, dvectors []tensor.Tensor) {
	dx, dvectors = c.gradients()
	x, vectors := c.operands(2)
	g.PoolGrad(dx[0], dvectors[0], c.e.strided(c.dy, textRows, a.Dim, 1), x[0], vectors[0], texts, a)
	return dx, dvectors
}

func testPoolGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	var spans []backend.Span
	for _, s := range texts.Spans {
		spans = append(spans, backend.Span{First: s.First, Rows: s.Rows})
	}
	for _, a := range []backend.PoolArgs{{Rate: 1, Dim: 5}, {Rate: 3, Dim: 70}, {Rate: 2, Dim: 9, Overlap: true}, {Rate: 4, Dim: 70, Overlap: true}} {
		c := poolCase(e, a)
		dx, dvectors := poolGradients(g, c, a)
		c.test(name("pool gradient", a), []string{"x", "bias"}, dx, dvectors, a.Dim, func(dst tensor.Tensor, x, v []tensor.Tensor) {
			g.Pool(dst, x[0], v[0], texts, spans, a)
		})
	}
}
