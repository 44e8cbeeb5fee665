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

// TestSumSmallBatch: weights that are turned meanwhile give the bits of panels.
func TestSumSmallBatch(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		if !set.GEMM.HasSmallBatch() {
			return
		}
		r, lanes, high := rand.New(rand.NewPCG(7, 3)), set.GEMM.PanelLanes(), set.GEMM.PanelRows()
		for tokens := 1; tokens <= gemm.SmallBatchTokens; tokens++ {
			rows, n := gemm.SmallBatchRows+tokens*5%50, gemm.SmallBatchColumns*(1+tokens%3)
			data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*(n+5)), tokens%5)
			w, x := mat.Weights{Data: data, Stride: 2 * (n + 5), Format: mat.BFloat16}, kerneltest.Random(r, tokens*n)
			left := kerneltest.Pack(set, mat.Floats{V: x, Stride: n}, true, high, tokens, n)
			want := make([]float32, tokens*rows)
			for i := 0; i < rows; i += lanes {
				panel := w
				panel.Data = w.Data[i*w.Stride:]
				right := make([]float32, 2*lanes*n)
				set.GEMM.WidenColumns(right, panel, min(lanes, rows-i), n, 0)
				set.GEMM.SumPanels(gemm.PanelProduct{C: mat.Floats{V: want[i:], Stride: rows}, A: left, AStride: n * lanes, B: right, Rows: tokens, Cols: min(lanes, rows-i), N: n, Add: false})
			}
			side, got := make([]float32, n*set.GEMM.SmallBatchWidth(tokens)), kerneltest.Random(r, tokens*rows)
			set.GEMM.PackSmallBatch(side, mat.Floats{V: x, Stride: n}, tokens, n)
			set.GEMM.MulSmallBatch(gemm.SmallBatch{C: mat.Floats{V: got, Stride: rows}, W: w, X: side, Rows: rows, Tokens: tokens, N: n, Next: data})
			for i, v := range got {
				if math.Float32bits(v) != math.Float32bits(want[i]) {
					t.Fatalf("%d tokens, %d columns: token %d, row %d of %d is %g, want %g", tokens, n, i/rows, i%rows, rows, v, want[i])
				}
			}
		}
	})
}

// BenchmarkSumSmallBatch is products of weights in the caches.
func BenchmarkSumSmallBatch(b *testing.B) {
	for _, set := range kerneltest.Variants() {
		if set.Name != "avx512" {
			continue
		}
		const rows, n = 32, 1024
		for _, tokens := range []int{1, 2, 4, 6, 8, 12, 16} {
			b.Run(fmt.Sprint(tokens), func(b *testing.B) {
				w := mat.Weights{Data: make([]byte, rows*n*2), Stride: n * 2, Format: mat.BFloat16}
				x, y := make([]float32, n*set.GEMM.SmallBatchWidth(tokens)), make([]float32, rows*tokens)
				for b.Loop() {
					set.GEMM.MulSmallBatch(gemm.SmallBatch{C: mat.Floats{V: y, Stride: rows}, W: w, X: x, Rows: rows, Tokens: tokens, N: n})
				}
				b.SetBytes(int64(len(w.Data)))
				b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}
