package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var dtypes = []meta.DType{meta.BFloat16, meta.Float16, meta.Float32}

// turned returns the transpose of a matrix [rows, cols].
func turned(v []float32, rows, cols int) []float32 {
	out := make([]float32, len(v))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = v[r*cols+c]
		}
	}
	return out
}

// product computes x·wᵀ + bias in float64.
func product(x, w, bias []float32, tokens, rows, cols int) []float64 {
	out := make([]float64, tokens*rows)
	for t := range tokens {
		for r := range rows {
			sum := 0.0
			for k := range cols {
				sum += float64(w[r*cols+k]) * float64(x[t*cols+k])
			}
			if bias != nil {
				sum += float64(bias[r])
			}
			out[t*rows+r] = sum
		}
	}
	return out
}

func (e *env) linear(x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) []float32 {
	e.Helper()
	dst := e.empty(x.Rows(), w.OutRows())
	e.Linear(dst, x, w, bias)
	got := e.read(dst)
	e.Free(dst)
	return got
}

var linearShapes = []struct{ rows, cols int }{
	{1, 1}, {3, 7}, {4, 8}, {5, 16}, {17, 31}, {16, 33}, {64, 64}, {33, 100}, {130, 257}, {21, 1100},
}

// testLinear has all dtypes, tails of all sizes, a bias of each dtype and strides.
func testLinear(e *env) {
	for i, s := range linearShapes {
		for j, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 11, 13, 100} {
			d := dtypes[(i+j)%3]
			x := e.values(tokens * s.cols)
			w := rounded(d, e.values(s.rows*s.cols))
			bias := rounded(dtypes[j%3], e.values(s.rows))
			want := product(x, w, bias, tokens, s.rows, s.cols)
			b := e.place(dtypes[j%3], bias, j%2, s.rows)
			in := e.strided(x, tokens, s.cols, j%3*5)
			m := backend.Matrix{Tensor: e.place(d, w, 0, s.rows, s.cols)}
			what := name("linear", d, s, "tokens", tokens)
			close64(e, what, e.linear(in, m, b), want, 1e-5, 4)
			m = backend.Matrix{Tensor: e.place(d, turned(w, s.rows, s.cols), i%2, s.cols, s.rows), Transposed: true}
			close64(e, what+"transposed", e.linear(in, m, b), want, 1e-5, 4)

			dst := e.empty(tokens, s.rows+3).Columns(1, 1+s.rows)
			e.Linear(dst, in, m, tensor.Tensor{})
			close64(e, what+"strided result", e.read(dst), product(x, w, nil, tokens, s.rows, s.cols), 1e-5, 4)
		}
	}
}

// testLinearRowsAlone: a token's result has the same bits alone and in any batch.
func testLinearRowsAlone(e *env) {
	for _, d := range dtypes {
		for _, s := range linearShapes[4:] {
			for _, transposed := range []bool{false, true} {
				const tokens = 39
				x := e.values(tokens * s.cols)
				dims := []int{s.rows, s.cols}
				if transposed {
					dims = []int{s.cols, s.rows}
				}
				m := backend.Matrix{Tensor: e.place(d, e.values(s.rows*s.cols), 0, dims...), Transposed: transposed}
				in := e.floats(x, tokens, s.cols)
				var alone []float32
				for t := range tokens {
					alone = append(alone, e.linear(in.Slice(t, t+1), m, tensor.Tensor{})...)
				}
				for _, n := range []int{2, 3, 4, 5, 6, 7, 13, tokens} {
					got := e.linear(in.Slice(tokens-n, tokens), m, tensor.Tensor{})
					sameBits(e, name("linear", d, s, transposed, n, "tokens"), got, alone[(tokens-n)*s.rows:])
				}
			}
		}
	}
}

// testLinearLayouts: misaligned, transposed, strided and interleaved weights give the same bits as
// the plain weight.
func testLinearLayouts(e *env) {
	for _, d := range dtypes {
		for _, s := range linearShapes {
			for _, tokens := range []int{1, 3, 35} {
				v := e.values(s.rows * s.cols)
				in := e.floats(e.values(tokens*s.cols), tokens, s.cols)
				want := e.linear(in, backend.Matrix{Tensor: e.place(d, v, 0, s.rows, s.cols)}, tensor.Tensor{})
				for _, offset := range []int{1, 8} {
					got := e.linear(in, backend.Matrix{Tensor: e.place(d, v, offset, s.rows, s.cols)}, tensor.Tensor{})
					sameBits(e, name("linear", d, s, tokens, "offset", offset), got, want)
					m := backend.Matrix{Tensor: e.place(d, turned(v, s.rows, s.cols), offset, s.cols, s.rows), Transposed: true}
					sameBits(e, name("linear", d, s, tokens, "transposed, offset", offset), e.linear(in, m, tensor.Tensor{}), want)
				}
				wide := e.place(d, widerRows(v, s.rows, s.cols, 3), 0, s.rows, s.cols+3)
				sameBits(e, name("linear", d, s, tokens, "strided"), e.linear(in, backend.Matrix{Tensor: wide.Columns(2, 2+s.cols)}, tensor.Tensor{}), want)
				testInterleaved(e, d, v, s.rows, s.cols, in, want)
			}
		}
	}
}

// testInterleaved multiplies by a weight stored in every second row of a matrix, by one in every
// second column, and with every second bias.
func testInterleaved(e *env, d meta.DType, v []float32, rows, cols int, in tensor.Tensor, want []float32) {
	e.Helper()
	double := make([]float32, 0, 2*len(v))
	for r := range rows {
		double = append(double, e.values(cols)...)
		double = append(double, v[r*cols:(r+1)*cols]...)
	}
	m := backend.Matrix{Tensor: e.place(d, double, 0, 2*rows, cols).Slice(1, 2*rows), RowStep: 2}
	sameBits(e, name("linear", d, rows, cols, "every second row"), e.linear(in, m, tensor.Tensor{}), want)
	t := e.place(d, turned(double, 2*rows, cols), 0, cols, 2*rows)
	m = backend.Matrix{Tensor: t.Columns(1, 2*rows), RowStep: 2, Transposed: true}
	sameBits(e, name("linear", d, rows, cols, "every second column"), e.linear(in, m, tensor.Tensor{}), want)

	bias := e.values(rows)
	var spread []float32
	for _, v := range bias {
		spread = append(spread, e.values(1)[0], v)
	}
	want = e.linear(in, m, e.place(d, bias, 0, rows))
	every := e.place(d, spread, 0, 2*rows).Slice(1, 2*rows)
	every.Stride, every.Dims[0] = 2, rows
	sameBits(e, name("linear", d, rows, cols, "every second bias"), e.linear(in, m, every), want)
}

// widerRows adds pad columns of NaN to each row: two before it and the rest behind it.
func widerRows(v []float32, rows, cols, pad int) []float32 {
	out := make([]float32, rows*(cols+pad))
	for i := range out {
		out[i] = float32(math.NaN())
	}
	for r := range rows {
		copy(out[r*(cols+pad)+2:], v[r*cols:(r+1)*cols])
	}
	return out
}

// testLinearNonFinite: NaN and infinities affect only the elements that depend on them.
func testLinearNonFinite(e *env) {
	inf := float32(math.Inf(1))
	const rows, cols, tokens = 19, 37, 7
	for _, d := range dtypes {
		for _, at := range []int{0, 15, 16, cols - 1} {
			for _, bad := range []float32{inf, -inf, float32(math.NaN())} {
				w, x := e.values(rows*cols), e.values(tokens*cols)
				w[3*cols+at] = bad
				x[2*cols+at] = bad
				want := product(x, rounded(d, w), nil, tokens, rows, cols)
				m := backend.Matrix{Tensor: e.place(d, w, 0, rows, cols)}
				got := e.linear(e.floats(x, tokens, cols), m, tensor.Tensor{})
				close64(e, name("linear", d, "with", bad, "at", at), got, want, 1e-5, 4)
			}
		}
	}
}
