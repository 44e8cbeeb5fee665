package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

func eachGrouper(t *testing.T, test func(*testing.T, *kernels.Set)) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		if set.GEMM.HasGroups() {
			test(t, set)
		}
	})
}

// TestGroups: groups give the bits of Mul, whatever the pieces of k.
func TestGroups(t *testing.T) {
	eachGrouper(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(5, 1))
		for n := 1; n < 150; n += 1 + n/40 {
			for f := range mat.Formats {
				rows, tokens := 1+n%11, 1+n%19
				data, _ := kerneltest.Store(f, kerneltest.Random(r, rows*n), n%5)
				w, x := mat.Weights{Data: data, Stride: n * f.Size(), Format: f}, mat.Floats{V: kerneltest.Random(r, tokens*(n+3)), Stride: n + 3}
				want := make([]float32, tokens*rows)
				set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: want, Stride: rows}, W: w, X: x, Rows: rows, Tokens: tokens, N: n})
				for _, rounds := range []int{1, 3, 100} {
					for i, v := range kerneltest.Grouped(set, w, x, rows, tokens, n, rounds) {
						if math.Float32bits(v) != math.Float32bits(want[i]) {
							t.Fatalf("format %d, n %d in pieces of %d: row %d of %d, token %d of %d is %g, Mul gives %g", f, n, rounds, i%rows, rows, i/rows, tokens, v, want[i])
						}
					}
				}
			}
		}
	})
}

// TestGroupsExtremes: what fills a group up changes no sum: not the sign of a zero, and no
// NaN or infinity reaches another row or token.
func TestGroupsExtremes(t *testing.T) {
	eachGrouper(t, func(t *testing.T, set *kernels.Set) {
		const rows, tokens, n = 4, 10, 37
		tiny := float32(1e-40)
		for _, odd := range []float32{float32(math.NaN()), float32(math.Inf(1)), tiny, -tiny} {
			v, x := make([]float32, rows*n), make([]float32, tokens*n)
			for i := range v {
				v[i] = -tiny
			}
			for i := range x {
				x[i] = tiny // products vanish as −0
			}
			v[2*n+n-1], x[3*n+n-1] = odd, odd
			w, in, want := mat.Weights{Data: asm.FloatBytes(v), Stride: 4 * n, Format: mat.Float32}, mat.Floats{V: x, Stride: n}, make([]float32, tokens*rows)
			set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: want, Stride: rows}, W: w, X: in, Rows: rows, Tokens: tokens, N: n})
			for i, got := range kerneltest.Grouped(set, w, in, rows, tokens, n, 2) {
				if got != got && want[i] != want[i] {
					continue
				}
				if math.Float32bits(got) != math.Float32bits(want[i]) {
					t.Fatalf("with %g: row %d, token %d is %g, Mul gives %g", odd, i%rows, i/rows, got, want[i])
				}
			}
		}
	})
}

// BenchmarkGroups is the work of a prompt on packed operands, one piece of k at a time.
func BenchmarkGroups(b *testing.B) {
	const rows, tokens, n = 48, 64, 2048
	for _, set := range kerneltest.Variants() {
		if !set.GEMM.HasGroups() || set.BF16 {
			continue
		}
		for _, step := range []int{256, 512, 1024} {
			b.Run(fmt.Sprintf("%s/%d", set.Name, step), func(b *testing.B) {
				w, x := make([]float32, set.GEMM.GroupFloats(rows, step)), make([]float32, set.GEMM.GroupFloats(tokens, n))
				size := set.GEMM.SumFloats(rows)
				sums, y := make([]float32, tokens/set.GEMM.GroupTokens*size), make([]float32, tokens*rows)
				for b.Loop() {
					for k := 0; k < n; k += step {
						for t := 0; t < tokens; t += set.GEMM.GroupTokens {
							own := sums[t/set.GEMM.GroupTokens*size:][:size]
							set.GEMM.MulGroups(gemm.GroupProduct{Y: mat.Floats{V: y[t*rows:], Stride: rows}, W: w, X: x[t*n+k*set.GEMM.GroupTokens:], Next: nil, Sums: own, Rows: rows, Tokens: set.GEMM.GroupTokens, N: step, First: k == 0, Last: k+step == n})
						}
					}
				}
				b.ReportMetric(2*rows*tokens*n/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}
