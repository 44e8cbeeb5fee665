package gemv_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

func TestMul(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for n := range 70 {
			for f := range mat.Formats {
				rows, tokens, offset := 1+n%9, 1+n%14, n%5
				w, held := kerneltest.Store(f, kerneltest.Random(r, rows*n), offset)
				x, y := kerneltest.Random(r, tokens*(n+3)), make([]float32, tokens*(rows+2))
				set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows + 2}, W: mat.Weights{Data: w, Stride: n * f.Size(), Format: f}, X: mat.Floats{V: x, Stride: n + 3}, Rows: rows, Tokens: tokens, N: n})
				for tok := range tokens {
					for row := range rows {
						want, size := 0.0, 0.0
						for k := range n {
							p := float64(held[row*n+k]) * float64(x[tok*(n+3)+k])
							want, size = want+p, size+math.Abs(p)
						}
						kerneltest.Near(t, fmt.Sprintf("format %d, n %d, row %d, token %d", f, n, row, tok), y[tok*(rows+2)+row], want, size)
					}
					if y[tok*(rows+2)+rows] != 0 {
						t.Fatalf("n %d: wrote past the rows of token %d", n, tok)
					}
				}
			}
		}
	})
}

// TestMulOrder holds the documented order: the lanes of a dot product can be added down
// the columns of a transposed matrix, and each is a Mix.
func TestMulOrder(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(2, 1))
		for _, n := range []int{1, 7, 8, 16, 31, 100, 1000} {
			for f := range mat.Formats {
				for _, rows := range []int{1, 5, 37, 100} {
					v := kerneltest.Random(r, rows*n)
					w, _ := kerneltest.Store(f, v, 1)
					turned := make([]float32, len(v))
					for i, e := range v {
						turned[i%n*rows+i/n] = e
					}
					c, _ := kerneltest.Store(f, turned, 3)
					x, want := kerneltest.Random(r, n), make([]float32, rows)
					set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: want, Stride: rows}, W: mat.Weights{Data: w, Stride: n * f.Size(), Format: f}, X: mat.Floats{V: x, Stride: n}, Rows: rows, Tokens: 1, N: n})
					added, mixed := make([]float32, set.Lanes*rows), make([]float32, set.Lanes*rows)
					set.GEMV.AddLanes(added, x, mat.Weights{Data: c, Stride: rows * f.Size(), Format: f}, rows)
					for l := range min(set.Lanes, n) {
						part := mat.Weights{Data: c[l*rows*f.Size():], Stride: set.Lanes * rows * f.Size(), Format: f}
						set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: mixed[l*rows:], Stride: rows}, P: mat.Floats{V: x[l:], Stride: n}, Step: set.Lanes, V: part, Keys: (n - l + set.Lanes - 1) / set.Lanes, Tokens: 1, Cols: rows})
					}
					set.GEMV.FoldLanes(added, rows)
					set.GEMV.FoldLanes(mixed, rows)
					for i, w := range want {
						if math.Float32bits(added[i]) != math.Float32bits(w) || math.Float32bits(mixed[i]) != math.Float32bits(w) {
							t.Fatalf("format %d, n %d, row %d: Mul gives %g, AddLanes %g, Mix %g", f, n, i, w, added[i], mixed[i])
						}
					}
				}
			}
		}
	})
}

func TestMix(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(3, 1))
		for cols := 1; cols < 150; cols++ {
			f := mat.Format(cols) % mat.Formats
			keys, tokens, step := 1+cols%11, 1+cols%13, 1+cols%3
			v, held := kerneltest.Store(f, kerneltest.Random(r, keys*cols), cols%4)
			p, y := kerneltest.Random(r, tokens*keys*step), kerneltest.Random(r, tokens*(cols+1))
			before := slices.Clone(y)
			set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: y, Stride: cols + 1}, P: mat.Floats{V: p, Stride: keys * step}, Step: step, V: mat.Weights{Data: v, Stride: cols * f.Size(), Format: f}, Keys: keys, Tokens: tokens, Cols: cols})
			for tok := range tokens {
				for c := range cols {
					i := tok*(cols+1) + c
					want, size := float64(before[i]), 1.0
					for j := range keys {
						e := float64(p[(tok*keys+j)*step]) * float64(held[j*cols+c])
						want, size = want+e, size+math.Abs(e)
					}
					kerneltest.Near(t, fmt.Sprintf("cols %d, token %d, column %d", cols, tok, c), y[i], want, size)
				}
				if i := tok*(cols+1) + cols; y[i] != before[i] {
					t.Fatalf("cols %d: wrote past the columns of token %d", cols, tok)
				}
			}
		}
	})
}
