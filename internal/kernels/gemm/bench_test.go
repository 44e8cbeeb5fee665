package gemm_test

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// BenchmarkTile is the work of prefill on weights and activations in the caches.
func BenchmarkTile(b *testing.B) {
	const n, rows, tokens = 2048, 32, 96
	for _, set := range kerneltest.Variants() {
		for f := range mat.Formats {
			b.Run(fmt.Sprintf("%s/%d", set.Name, f), func(b *testing.B) {
				w := mat.Weights{Data: make([]byte, rows*n*f.Size()), Stride: n * f.Size(), Format: f}
				x, y := make([]float32, n*tokens), make([]float32, rows*tokens)
				for b.Loop() {
					set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows}, W: w, X: mat.Floats{V: x, Stride: n}, Rows: rows, Tokens: tokens, N: n})
				}
				b.ReportMetric(2*n*rows*tokens/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}
