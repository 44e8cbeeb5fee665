package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// byHalves is Mul by way of split tokens, with k cut into pieces of step.
func byHalves(set *Set, w Weights, x Floats, rows, tokens, n, step int) []float32 {
	y := make([]float32, tokens*rows)
	for t := 0; t < tokens; {
		group := set.HalvesTokens(tokens - t)
		split, sums := make([]float32, group*set.SplitFloats(n)), make([]float32, set.HalvesSums(rows, group))
		set.SplitTokens(split, Floats{x.V[t*x.Stride:], x.Stride}, group, n)
		for k := 0; k < n; k += step {
			part := w
			part.Data = w.Data[2*k:]
			set.MulHalves(Floats{y[t*rows:], rows}, part, split[k*group:], sums, rows, group, min(step, n-k), k, k+step >= n)
		}
		t += group
	}
	return y
}

// TestMulHalves: products are right, with the same bits whatever the tokens and pieces of k.
func TestMulHalves(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		if !set.Halves() {
			return
		}
		r := rand.New(rand.NewPCG(5, 2))
		for n := 1; n < 200; n += 1 + n/30 {
			rows, tokens := 1+n%11, 1+n%17
			data, values := store(BFloat16, random(r, rows*(n+2)), n%5)
			w, x := Weights{data, 2 * (n + 2), BFloat16}, Floats{random(r, tokens*(n+3)), n + 3}
			want := byHalves(set, w, x, rows, tokens, n, HalvesBlock*100)
			for i := range tokens {
				for j := range rows {
					sum, size := 0.0, 0.0
					for k := range n {
						p := float64(values[j*(n+2)+k]) * float64(x.V[i*x.Stride+k])
						sum, size = sum+p, size+math.Abs(p)
					}
					near(t, fmt.Sprintf("n %d, token %d of %d, row %d of %d", n, i, tokens, j, rows), want[i*rows+j], sum, size)
				}
				alone := byHalves(set, w, Floats{x.V[i*x.Stride:], x.Stride}, rows, 1, n, HalvesBlock*100)
				for j, v := range alone {
					if math.Float32bits(v) != math.Float32bits(want[i*rows+j]) {
						t.Fatalf("n %d, token %d of %d, row %d: %g alone, %g together", n, i, tokens, j, v, want[i*rows+j])
					}
				}
			}
			for _, blocks := range []int{1, 2, 3} {
				for i, v := range byHalves(set, w, x, rows, tokens, n, HalvesBlock*blocks) {
					if math.Float32bits(v) != math.Float32bits(want[i]) {
						t.Fatalf("n %d in pieces of %d blocks: token %d, row %d is %g, at once %g", n, blocks, i/rows, i%rows, v, want[i])
					}
				}
			}
		}
	})
}

func halvesStayInside(t *testing.T, set *Set, n int) {
	if !set.Halves() {
		return
	}
	rows, tokens := 1+n%7, set.HalvesTokens(1+n%9)
	split := guardedFloats(t, tokens*set.SplitFloats(n))
	set.SplitTokens(split, Floats{guardedFloats(t, tokens*n), n}, tokens, n)
	w, sums := Weights{guarded(t, rows*n*2), n * 2, BFloat16}, guardedFloats(t, set.HalvesSums(rows, tokens))
	set.MulHalves(Floats{guardedFloats(t, tokens*rows), rows}, w, split, sums, rows, tokens, n, 0, false)
	set.MulHalves(Floats{guardedFloats(t, tokens*rows), rows}, w, split, sums, rows, tokens, n, 32, true)
}

// BenchmarkMulHalves is products of weights in the caches.
func BenchmarkMulHalves(b *testing.B) {
	for _, set := range available() {
		if set.Name != "avx512" && set.Name != "avx2" {
			continue
		}
		const rows, n = 24, 704
		for tokens := 1; tokens <= set.HalvesTokens(8); tokens *= 2 {
			b.Run(fmt.Sprintf("%s/%d", set.Name, tokens), func(b *testing.B) {
				w := Weights{make([]byte, rows*n*2), n * 2, BFloat16}
				x, y, sums := make([]float32, tokens*n), make([]float32, rows*tokens), make([]float32, set.HalvesSums(rows, tokens))
				for b.Loop() {
					set.MulHalves(Floats{y, rows}, w, x, sums, rows, tokens, n, 32, false)
				}
				b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}
