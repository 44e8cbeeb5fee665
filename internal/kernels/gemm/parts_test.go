package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// eachParter runs test for every variant that has parts, and for each number of them.
func eachParter(t *testing.T, test func(*testing.T, *kernels.Set, int)) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		v := set.Variant
		v.SlowPairs = false // here only speed
		set = kernels.For(v)
		for _, parts := range []int{gemm.RoundedParts, gemm.FloatParts} {
			if set.GEMM.HasParts(parts) {
				t.Run(fmt.Sprint(parts), func(t *testing.T) { test(t, set, parts) })
			}
		}
	})
}

// TestMulParts: products of parts are as near to the truth as products of floats.
func TestMulParts(t *testing.T) {
	eachParter(t, func(t *testing.T, set *kernels.Set, parts int) {
		r := rand.New(rand.NewPCG(1, 1))
		for n := 1; n < 140; n += 3 {
			rows, cols := 1+n%32, 1+n*5%64
			x, y := kerneltest.Random(r, rows*n), kerneltest.Random(r, cols*n)
			turnX, turnY := kerneltest.Transposed(x, rows, n), kerneltest.Transposed(y, cols, n)
			couples := mat.CeilDiv(cols, 32)
			for form := range 4 {
				a := kerneltest.PackAll(set, mat.Floats{V: x, Stride: n}, false, false, parts, rows, n)
				if form&1 != 0 {
					a = kerneltest.PackAll(set, mat.Floats{V: turnX, Stride: rows}, false, true, parts, rows, n)
				}
				b := kerneltest.PackAll(set, mat.Floats{V: y, Stride: n}, true, false, parts, cols, n)
				if form&2 != 0 {
					b = kerneltest.PackAll(set, mat.Floats{V: turnY, Stride: cols}, true, true, parts, cols, n)
				}
				c := make([]float32, 32*32*couples)
				for i := range c {
					c[i] = 1
				}
				set.GEMM.MulParts(mat.Floats{V: c, Stride: 32 * couples}, kerneltest.PacksOf(a, parts, n), kerneltest.PacksOf(b, parts, n), mat.CeilDiv(n, gemm.BlockK), couples, form == 3)
				for i := range rows {
					for j := range cols {
						u, v := x[i*n:(i+1)*n], y[j*n:(j+1)*n]
						if parts == gemm.RoundedParts {
							u, v = kerneltest.Rounded(u), kerneltest.Rounded(v)
						}
						got := c[i*32*couples+j]
						if form == 3 {
							got--
						}
						product(t, fmt.Sprintf("n %d, %d parts, form %d, element %d %d", n, parts, form, i, j), got, u, v)
					}
				}
			}
		}
	})
}

// TestPartsOfExtremes: large numbers keep their products, and infinities and NaN are kept.
func TestPartsOfExtremes(t *testing.T) {
	eachParter(t, func(t *testing.T, set *kernels.Set, parts int) {
		if parts != gemm.FloatParts {
			return
		}
		inf := float32(math.Inf(1))
		for _, c := range []struct{ x, y, want float32 }{
			{1e30, 1e-30, 1}, {1e-20, 1e-10, 1e-30}, {16777215, 16777215, 16777215 * 16777215}, {inf, 2, inf}, {float32(math.NaN()), 0, inf}, {3e38, 3e38, inf},
		} {
			a := kerneltest.PackAll(set, mat.Floats{V: []float32{c.x}, Stride: 1}, false, false, gemm.FloatParts, 1, 1)
			b := kerneltest.PackAll(set, mat.Floats{V: []float32{c.y}, Stride: 1}, true, false, gemm.FloatParts, 1, 1)
			out := make([]float32, 32*32)
			set.GEMM.MulParts(mat.Floats{V: out, Stride: 32}, kerneltest.PacksOf(a, gemm.FloatParts, 1), kerneltest.PacksOf(b, gemm.FloatParts, 1), 1, 1, false)
			finite := out[0]-out[0] == 0
			switch {
			case c.want == inf && finite:
				t.Errorf("%g by %g is %g", c.x, c.y, out[0])
			case c.want != inf && !(math.Abs(float64(out[0]/c.want)-1) <= 1e-6):
				t.Errorf("%g by %g is %g, want %g", c.x, c.y, out[0], c.want)
			}
			for i, v := range out[1:] {
				if v != 0 && c.want != inf {
					t.Fatalf("element %d is %g", i+1, v)
				}
			}
		}
	})
}

// BenchmarkMulParts multiplies a unit of packed operands, over all terms at once and in blocks of
// so many of them as the nearest cache holds.
func BenchmarkMulParts(b *testing.B) {
	set, err := kernels.Select("")
	if err != nil {
		b.Fatal(err)
	}
	for _, parts := range [][2]int{{gemm.RoundedParts, gemm.RoundedParts}, {gemm.FloatParts, gemm.RoundedParts}, {gemm.FloatParts, gemm.FloatParts}} {
		if !set.GEMM.HasParts(parts[0]) {
			continue
		}
		for _, sum := range []int{64, 96, 128, 192, 256, 384} {
			const couples, rows, n = 8, 160, 768
			left, right := gemm.Packs{V: nil, Parts: parts[0], Words: gemm.PanelWords(n)}, gemm.Packs{V: nil, Parts: parts[1], Words: gemm.PanelWords(n)}
			left.V, right.V = make([]uint32, rows/16*left.Size()), make([]uint32, 2*couples*right.Size())
			c := make([]float32, rows*32*couples)
			b.Run(fmt.Sprintf("%d%d/%d", parts[0], parts[1], sum), func(b *testing.B) {
				for b.Loop() {
					for k := 0; k < n; k += sum {
						for i := 0; i < rows; i += 32 {
							set.GEMM.MulParts(mat.Floats{V: c[i*32*couples:], Stride: 32 * couples}, left.From(i/16, k/32), right.From(0, k/32), sum/gemm.BlockK, couples, true)
						}
					}
				}
				b.ReportMetric(2*float64(rows*32*couples*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
			})
		}
	}
}
