package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var roles = []backend.Role{backend.Generated, backend.Prompt}

func (e *env) linearRounded(x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, role backend.Role) []float32 {
	e.Helper()
	dst := e.empty(x.Rows(), w.OutRows())
	e.LinearRounded(dst, x, w, bias, role)
	got := e.read(dst)
	e.Free(dst)
	return got
}

// closeRounded compares with a product whose inputs may be rounded to d.
func closeRounded(e *env, what string, got []float32, d meta.DType, x, w, bias []float32, tokens, rows, cols int) {
	e.Helper()
	half := map[meta.DType]float64{meta.BFloat16: 0x1p-8, meta.Float16: 0x1p-11}[d] // relative error of a rounding
	for i, want := range product(x, w, bias, tokens, rows, cols) {
		size := 1.0
		for k := range cols {
			size += math.Abs(float64(x[i/rows*cols+k]) * float64(w[i%rows*cols+k]))
		}
		if diff := math.Abs(float64(got[i]) - want); !(diff <= (half+1e-5)*size) {
			e.Fatalf("%s: element %d is %g, want %g", what, i, got[i], want)
		}
	}
}

// testLinearRounded tests all dtypes, roles, sizes of tails, and strides.
func testLinearRounded(e *env) {
	for i, s := range linearShapes {
		for j, tokens := range []int{1, 2, 3, 5, 6, 16, 17, 33, 100, 300} {
			d := dtypes[min((i+j)%4, 3)%3] // bfloat16 twice as often
			role := roles[(i+j/2)%2]
			x, w := e.values(tokens*s.cols), rounded(d, e.values(s.rows*s.cols))
			bias := rounded(dtypes[j%3], e.values(s.rows))
			b := e.place(dtypes[j%3], bias, j%2, s.rows)
			in := e.strided(x, tokens, s.cols, j%3*5)
			m := backend.Matrix{Tensor: e.place(d, w, 0, s.rows, s.cols)}
			what := name("rounded linear", d, s, "role", role, "tokens", tokens)
			closeRounded(e, what, e.linearRounded(in, m, b, role), d, x, w, bias, tokens, s.rows, s.cols)
			m = backend.Matrix{Tensor: e.place(d, turned(w, s.rows, s.cols), i%2, s.cols, s.rows), Transposed: true}
			closeRounded(e, what+"transposed", e.linearRounded(in, m, b, role), d, x, w, bias, tokens, s.rows, s.cols)

			dst := e.empty(tokens, s.rows+3).Columns(1, 1+s.rows)
			e.LinearRounded(dst, in, m, tensor.Tensor{}, role)
			closeRounded(e, what+"strided result", e.read(dst), d, x, w, nil, tokens, s.rows, s.cols)
		}
	}
}

// testLinearRoundedAlone: in either role a token's result has the same bits alone and in any batch,
// with weights at any address.
func testLinearRoundedAlone(e *env) {
	for _, s := range linearShapes[4:] {
		for _, role := range roles {
			const tokens = 75
			v := e.values(s.rows * s.cols)
			m := backend.Matrix{Tensor: e.place(meta.BFloat16, v, 0, s.rows, s.cols)}
			in := e.floats(e.values(tokens*s.cols), tokens, s.cols)
			var alone []float32
			for t := range tokens {
				alone = append(alone, e.linearRounded(in.Slice(t, t+1), m, tensor.Tensor{}, role)...)
			}
			for _, n := range []int{2, 3, 6, 13, 33, tokens} {
				got := e.linearRounded(in.Slice(tokens-n, tokens), m, tensor.Tensor{}, role)
				sameBits(e, name("rounded linear", s, "role", role, n, "tokens"), got, alone[(tokens-n)*s.rows:])
			}
			moved := backend.Matrix{Tensor: e.place(meta.BFloat16, v, 7, s.rows, s.cols)}
			sameBits(e, name("rounded linear", s, "role", role, "moved"), e.linearRounded(in, moved, tensor.Tensor{}, role), alone)
			wide := e.place(meta.BFloat16, widerRows(v, s.rows, s.cols, 3), 0, s.rows, s.cols+3)
			inner := backend.Matrix{Tensor: wide.Columns(2, 2+s.cols)}
			sameBits(e, name("rounded linear", s, "role", role, "strided"), e.linearRounded(in, inner, tensor.Tensor{}, role), alone)
			testRoundedSteps(e, s.rows, s.cols, in, m, alone, role)
			testRoundedTurned(e, v, s.rows, s.cols, in, role)
		}
	}
}

// testRoundedTurned multiplies by the weight stored transposed.
func testRoundedTurned(e *env, v []float32, rows, cols int, in tensor.Tensor, role backend.Role) {
	e.Helper()
	m := backend.Matrix{Tensor: e.place(meta.BFloat16, turned(v, rows, cols), 0, cols, rows), Transposed: true}
	all := e.linearRounded(in, m, tensor.Tensor{}, role)
	for _, n := range []int{1, 2, 7, 15, 40} {
		for t := 0; t+n <= in.Rows(); t += 29 {
			got := e.linearRounded(in.Slice(t, t+n), m, tensor.Tensor{}, role)
			sameBits(e, name("rounded linear, transposed", rows, cols, "role", role, n, "tokens"), got, all[t*rows:][:n*rows])
		}
	}
}

// testRoundedSteps multiplies by every second row.
func testRoundedSteps(e *env, rows, cols int, in tensor.Tensor, m backend.Matrix, whole []float32, role backend.Role) {
	e.Helper()
	m.RowStep = 2
	got, n := e.linearRounded(in, m, tensor.Tensor{}, role), m.OutRows()
	var want []float32
	for i := range got {
		want = append(want, whole[i/n*rows+i%n*2])
	}
	sameBits(e, name("rounded linear", rows, cols, "role", role, "every second row"), got, want)
}

// testQuantisedPrompts: prompts may be rounded when multiplied by weights in published formats, and
// so may the weights. A token's result has the same bits alone and in a prompt.
func testQuantisedPrompts(e *env) {
	for _, c := range e.codedCases() {
		if c.spec.Format.Row().Convert {
			continue // see testQuantisedRounded
		}
		plain, sizes := backend.Matrix{Tensor: e.floats(c.values, c.rows, c.cols)}, backend.Matrix{Tensor: e.floats(magnitudes(c.values), c.rows, c.cols)}
		for i, view := range []func(m backend.Matrix) backend.Matrix{
			func(m backend.Matrix) backend.Matrix { return m },
			func(m backend.Matrix) backend.Matrix { return m.CutRows(c.rows/2, c.rows) },
			func(m backend.Matrix) backend.Matrix { return m.CutColumns(c.cols/4, c.cols) },
		} {
			for step := 1; step <= 2; step++ {
				for _, transposed := range []bool{false, true} {
					cut := func(m backend.Matrix) backend.Matrix {
						m = view(m)
						m.Transposed, m.RowStep = transposed, step
						return m
					}
					what := name("a prompt of", c.name, "view", i, "step", step, "transposed", transposed)
					e.closePrompts(what, cut(e.matrix(&c, 7*i)), cut(plain), cut(sizes))
				}
			}
		}
	}
}

func magnitudes(v []float32) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(math.Abs(float64(x)))
	}
	return out
}

// closePrompts compares a product with m with a product with its values. sizes are the values'
// magnitudes.
func (e *env) closePrompts(what string, m, plain, sizes backend.Matrix) {
	e.Helper()
	const tokens = 37
	rows, v := m.OutRows(), e.values(tokens*m.InCols())
	x, bias := e.floats(v, tokens, m.InCols()), e.floats(e.values(rows), rows)
	got, want := e.linearRounded(x, m, bias, backend.Prompt), e.linear(x, plain, bias)
	most := e.linear(e.floats(magnitudes(v), tokens, m.InCols()), sizes, tensor.Tensor{})
	for i, w := range want {
		if diff := math.Abs(float64(got[i] - w)); !(diff <= 0x1p-7*float64(most[i])+1e-6) {
			e.Fatalf("%s: token %d, row %d is %g, want %g", what, i/rows, i%rows, got[i], w)
		}
	}
	for _, t := range []int{0, tokens - 1} {
		sameBits(e, name(what, "token", t, "alone"), e.linearRounded(x.Slice(t, t+1), m, bias, backend.Prompt), got[t*rows:][:rows])
	}
}
