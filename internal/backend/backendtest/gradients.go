package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// slope is an operand with the gradient that a backend computed for it.
type slope struct {
	name   string
	v      []float32
	grad   []float32
	before float32 // the initial value of the gradient
}

// begun is the initial value of gradients: operations must add to it.
const begun = 0.25

func (e *env) gradient(rows, cols int) tensor.Tensor {
	e.Helper()
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = begun
	}
	return e.strided(v, rows, cols, 3)
}

// slopes compares gradients of Σ c·result with difference quotients. result computes the result
// from the current values of the operands.
func (e *env) slopes(what string, c []float32, result func() []float32, operands ...slope) {
	e.Helper()
	const step = 1e-2
	total := func() float64 {
		sum := 0.0
		for i, v := range result() {
			sum += float64(c[i]) * float64(v)
		}
		return sum
	}
	for _, o := range operands {
		for k := range 10 {
			i := e.random.IntN(len(o.v))
			if k == 0 {
				i = len(o.v) - 1
			}
			old := o.v[i]
			o.v[i] = old + step
			above := total()
			o.v[i] = old - step
			want := (above - total()) / (2 * step)
			o.v[i] = old
			if got := float64(o.grad[i] - o.before); !(math.Abs(got-want) <= 6e-3*(1+math.Abs(want))) {
				e.Errorf("%s: gradient %d of %s is %g, differences give %g", what, i, o.name, got, want)
				return
			}
		}
	}
}

// gradients returns the backend's gradient operations, or nil if it has none.
func (e *env) gradients() backend.Gradients {
	g, _ := e.Backend.(backend.Gradients)
	return g
}

// matrixOf stores w [rows, cols] as a weight. place reads its gradient back in the order of w.
func (e *env) matrixOf(d meta.DType, w []float32, rows, cols int, transposed bool, step int) backend.Matrix {
	e.Helper()
	wide := make([]float32, rows*step*cols)
	for r := range rows {
		copy(wide[r*step*cols:], w[r*cols:(r+1)*cols])
	}
	m := backend.Matrix{Tensor: e.place(d, wide, 0, rows*step, cols), Transposed: transposed, RowStep: step}
	if transposed {
		m.Tensor = e.place(d, turned(wide, rows*step, cols), 0, cols, rows*step)
	}
	return m
}

func (e *env) readMatrix(m backend.Matrix) []float32 {
	e.Helper()
	v, rows, cols := e.read(m.Tensor), m.OutRows(), m.InCols()
	step := max(m.RowStep, 1)
	if m.Transposed {
		v = turned(v, cols, len(v)/cols)
	}
	out := make([]float32, 0, rows*cols)
	for r := range rows {
		out = append(out, v[r*step*cols:][:cols]...)
	}
	return out
}

func testLinearGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, s := range []struct{ tokens, rows, cols int }{{3, 5, 7}, {37, 33, 130}, {1, 64, 20}} {
		for _, transposed := range []bool{false, true} {
			for _, step := range []int{1, 2} {
				x, w, bias := e.values(s.tokens*s.cols), e.values(s.rows*s.cols), e.values(s.rows)
				dy := e.values(s.tokens * s.rows)
				dx, db := e.gradient(s.tokens, s.cols), e.floats(make([]float32, s.rows), s.rows)
				dw := e.matrixOf(meta.Float32, make([]float32, len(w)), s.rows, s.cols, transposed, step)
				m := e.matrixOf(meta.Float32, w, s.rows, s.cols, transposed, step)
				g.LinearGrad(dx, dw, db, e.strided(dy, s.tokens, s.rows, 2), e.strided(x, s.tokens, s.cols, 1), m, false)
				what := name("linear gradient", s, transposed, step)
				e.slopes(what, dy, func() []float32 {
					return e.linear(e.floats(x, s.tokens, s.cols), e.matrixOf(meta.Float32, w, s.rows, s.cols, transposed, step), e.floats(bias, s.rows))
				}, slope{"x", x, e.read(dx), begun}, slope{"w", w, e.readMatrix(dw), 0}, slope{"bias", bias, e.read(db), 0})
				e.linearGradDTypes(what, g, s.tokens, s.rows, s.cols, transposed, step, x, dy)
			}
		}
	}
}

// linearGradDTypes checks that 16-bit weights give the gradients of their values, and that Product
// and rounded products equal Linear except for rounding.
func (e *env) linearGradDTypes(what string, g backend.Gradients, tokens, rows, cols int, transposed bool, step int, x, dy []float32) {
	e.Helper()
	for _, d := range dtypes {
		w := rounded(d, e.values(rows*cols))
		grads := [2][]float32{}
		for i, dtype := range []meta.DType{d, meta.Float32} {
			dx := e.gradient(tokens, cols)
			m := e.matrixOf(dtype, w, rows, cols, transposed, step)
			g.LinearGrad(dx, backend.Matrix{}, tensor.Tensor{}, e.floats(dy, tokens, rows), tensor.Tensor{}, m, false)
			grads[i] = e.read(dx)
		}
		close64(e, what+d.String(), grads[0], wide(grads[1]), 1e-5, 8)
		want := product(x, w, nil, tokens, rows, cols)
		dst := e.empty(tokens, rows)
		m := e.matrixOf(d, w, rows, cols, transposed, step)
		g.Product(dst, e.floats(x, tokens, cols), m, tensor.Tensor{}, false)
		close64(e, what+"product"+d.String(), e.read(dst), want, 1e-5, 8)
		g.Product(dst, e.floats(x, tokens, cols), m, tensor.Tensor{}, true)
		close64(e, what+"rounded product"+d.String(), e.read(dst), want, 3e-2, 20)
		if d == meta.BFloat16 {
			dx := e.gradient(tokens, cols)
			g.LinearGrad(dx, backend.Matrix{}, tensor.Tensor{}, e.floats(dy, tokens, rows), tensor.Tensor{}, m, true)
			close64(e, what+"rounded", e.read(dx), wide(grads[1]), 3e-2, 20)
		}
	}
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func testNormGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, cols = 5, 24
	for _, a := range []meta.NormSpec{
		{Dim: cols, Eps: 1e-5}, {Dim: cols, Eps: 1e-5, Layer: true}, {Dim: 8, Eps: 1e-6, Offset: 1},
		{Dim: 8, Eps: 1e-6, Heads: 3}, {Dim: 8, Eps: 1e-5, Layer: true, Heads: 3},
	} {
		n := a.Dim * max(a.Heads, 1)
		for _, plain := range []bool{false, true} {
			x, weight, bias, dy := e.values(rows*cols), e.values(n), e.values(n), e.values(rows*cols)
			vectors := func() (w, b tensor.Tensor) {
				if plain {
					return w, b
				}
				return e.floats(weight, n), e.floats(bias, n)
			}
			w, _ := vectors()
			dx := e.gradient(rows, cols)
			var dw, db tensor.Tensor
			if !plain {
				dw, db = e.floats(make([]float32, n), n), e.floats(make([]float32, n), n)
			}
			g.NormGrad(dx, dw, db, e.strided(dy, rows, cols, 1), e.strided(x, rows, cols, 2), w, a)
			operands := []slope{{"x", x, e.read(dx), begun}}
			if !plain {
				operands = append(operands, slope{"weight", weight, e.read(dw), 0}, slope{"bias", bias, e.read(db), 0})
			}
			e.slopes(name("norm gradient", a, plain), dy, func() []float32 {
				w, b := vectors()
				dst := e.empty(rows, cols)
				e.Norm(dst, e.floats(x, rows, cols), w, b, a)
				return e.read(dst)
			}, operands...)
		}
	}
}

func testRopeGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, heads, dim, half = 4, 3, 10, 4
	for _, interleaved := range []bool{false, true} {
		x, cos, sin, dy := e.values(rows*heads*dim), e.values(rows*half), e.values(rows*half), e.values(rows*heads*dim)
		dx := e.strided(dy, rows, heads*dim, 2)
		g.RopeGrad(dx, dim, e.floats(cos, rows, half), e.floats(sin, rows, half), interleaved)
		e.slopes(name("rope gradient", interleaved), dy, func() []float32 {
			y := e.floats(x, rows, heads*dim)
			e.Rope(y, dim, e.floats(cos, rows, half), e.floats(sin, rows, half), interleaved)
			return e.read(y)
		}, slope{"x", x, e.read(dx), 0})
	}
}

// limitOf returns a limit that lies within the range of test values. For ActExpRest it is Apertus's
// limit, because a larger one makes the function jump at 0.
func limitOf(act meta.Activation) float32 {
	if act == meta.ActExpRest {
		return 1e-6
	}
	return 1.5
}

func testGateGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, cols = 3, 19
	acts := []meta.Activation{meta.ActClampedSiLU}
	for act := meta.ActNone; act <= meta.ActExpRest; act++ {
		acts = append(acts, act)
	}
	for _, act := range acts {
		for _, plain := range []bool{false, true} {
			x, up, dy := e.values(rows*cols), e.values(rows*cols), e.values(rows*cols)
			x[3], x[4], up[5], up[6] = 3, -3, 3, -3 // beyond the limit
			limit := limitOf(act)
			dx := e.gradient(rows, cols)
			var other, du tensor.Tensor
			if !plain {
				other, du = e.floats(up, rows, cols), e.gradient(rows, cols)
			}
			g.GateGrad(dx, du, e.floats(dy, rows, cols), e.floats(x, rows, cols), other, act, limit)
			operands := []slope{{"gate", x, e.read(dx), begun}}
			if !plain {
				operands = append(operands, slope{"up", up, e.read(du), begun})
			}
			e.slopes(name("gate gradient", act, plain), dy, func() []float32 {
				dst := e.empty(rows, cols)
				if other = (tensor.Tensor{}); !plain {
					other = e.floats(up, rows, cols)
				}
				e.Gate(dst, e.floats(x, rows, cols), other, act, limit)
				return e.read(dst)
			}, operands...)
		}
	}
}
