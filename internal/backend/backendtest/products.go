package backendtest

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// testProducts: a call with many products gives the same bits as one call for each, whichever
// products share inputs.
func testProducts(e *env) {
	const cols = 96
	inputs := []tensor.Tensor{
		e.floats(e.values(40*cols), 40, cols), e.strided(e.values(300*cols), 300, cols, 5), e.floats(e.values(cols), 1, cols),
	}
	var all []backend.Product
	for i, x := range inputs {
		for j, rows := range []int{1, 17, 64, 130} {
			for k, d := range append(dtypes, meta.BFloat16) {
				p := backend.Product{X: x, Rounded: k > 0, Role: roles[(i+j+k)%2]}
				p.W = backend.Matrix{Tensor: e.place(d, e.values(rows*cols), k, rows, cols)}
				if (i+j+k)%5 == 4 {
					p.W = backend.Matrix{Tensor: e.place(d, e.values(rows*cols), k, cols, rows), Transposed: true}
				}
				switch (i + j + k) % 3 {
				case 0:
					p.Bias = e.place(dtypes[(i+k)%3], e.values(rows), j, rows)
				case 1:
					p.Bias = e.place(meta.BFloat16, e.values(2*rows), 0, 2*rows)
					p.Bias.Stride, p.Bias.Dims[0] = 2, rows
				}
				all = append(all, p)
			}
		}
	}
	for _, c := range e.codedCases() {
		if c.cols == cols {
			for i, x := range inputs {
				all = append(all, backend.Product{X: x.Slice(0, min(x.Rows(), 30)), W: e.matrix(&c, i), Rounded: i > 0, Role: roles[i%2]})
			}
		}
	}
	all = append(all, backend.Product{X: inputs[0].Slice(0, 0), W: all[0].W})
	for _, n := range []int{0, 1, 2, 3, 7, len(all)} {
		testTogether(e, all[len(all)-n:])
	}
	for first := 0; first+3 < len(all); first += 3 {
		testTogether(e, all[first:first+3])
	}
}

// testTogether compares a call with all products with one call for each.
func testTogether(e *env, ps []backend.Product) {
	e.Helper()
	for i := range ps {
		rows, width := ps[i].X.Rows(), ps[i].W.OutRows()
		ps[i].Dst = e.empty(max(rows, 1), width+2).Columns(1, 1+width).Slice(0, rows)
	}
	e.Products(ps)
	for i := range ps {
		p := &ps[i]
		if p.X.Rows() == 0 {
			continue
		}
		got, alone := e.read(p.Dst), e.empty(p.X.Rows(), p.W.OutRows())
		if p.Rounded {
			e.LinearRounded(alone, p.X, p.W, p.Bias, p.Role)
		} else {
			e.Linear(alone, p.X, p.W, p.Bias)
		}
		sameBits(e, name("product", i, "of", len(ps), p.W.DType, p.W.Shape(), p.Rounded, p.Role), got, e.read(alone))
		e.Free(alone)
	}
}
