package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestSumFew: weights that are turned meanwhile give the bits of panels.
func TestSumFew(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		if !set.Few() {
			return
		}
		r, lanes, high := rand.New(rand.NewPCG(7, 3)), set.PanelLanes(), set.PanelRows()
		for tokens := 1; tokens <= FewTokens; tokens++ {
			rows, n := FewRows+tokens*5%50, FewColumns*(1+tokens%3)
			data, _ := store(BFloat16, random(r, rows*(n+5)), tokens%5)
			w, x := Weights{data, 2 * (n + 5), BFloat16}, random(r, tokens*n)
			left := pack(set, Floats{x, n}, true, high, tokens, n)
			want := make([]float32, tokens*rows)
			for i := 0; i < rows; i += lanes {
				panel := w
				panel.Data = w.Data[i*w.Stride:]
				right := make([]float32, 2*lanes*n)
				set.WidenColumns(right, panel, min(lanes, rows-i), n, 0)
				set.SumPanels(Floats{want[i:], rows}, left, n*lanes, right, tokens, min(lanes, rows-i), n, false)
			}
			side, got := make([]float32, n*set.FewWidth(tokens)), random(r, tokens*rows)
			set.PackFew(side, Floats{x, n}, tokens, n)
			set.SumFew(Floats{got, rows}, w, side, rows, tokens, n, data)
			for i, v := range got {
				if math.Float32bits(v) != math.Float32bits(want[i]) {
					t.Fatalf("%d tokens, %d columns: token %d, row %d of %d is %g, want %g", tokens, n, i/rows, i%rows, rows, v, want[i])
				}
			}
		}
	})
}

func fewStaysInside(t *testing.T, set *Set, n int) {
	if !set.Few() {
		return
	}
	rows, tokens, cols := FewRows+n%23, 1+n%FewTokens, FewColumns*(1+n%2)
	side, w := guardedFloats(t, cols*set.FewWidth(tokens)), Weights{guarded(t, rows*cols*2), cols * 2, BFloat16}
	set.PackFew(side, Floats{guardedFloats(t, tokens*cols), cols}, tokens, cols)
	set.SumFew(Floats{guardedFloats(t, tokens*rows), rows}, w, side, rows, tokens, cols, nil)
}

// BenchmarkSumFew is products of weights in the caches.
func BenchmarkSumFew(b *testing.B) {
	for _, set := range available() {
		if set.Name != "avx512" {
			continue
		}
		const rows, n = 32, 1024
		for _, tokens := range []int{1, 2, 4, 6, 8, 12, 16} {
			b.Run(fmt.Sprint(tokens), func(b *testing.B) {
				w := Weights{make([]byte, rows*n*2), n * 2, BFloat16}
				x, y := make([]float32, n*set.FewWidth(tokens)), make([]float32, rows*tokens)
				for b.Loop() {
					set.SumFew(Floats{y, rows}, w, x, rows, tokens, n, nil)
				}
				b.SetBytes(int64(len(w.Data)))
				b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}
