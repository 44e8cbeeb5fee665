package kernels

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/kernels/mat"
)

// BenchmarkMul is products of weights in the caches.
func BenchmarkMul(b *testing.B) {
	for _, set := range variants() {
		if set.Name != "avx512" && set.Name != "avx2" {
			continue
		}
		for _, f := range []mat.Format{mat.BFloat16, mat.Float32} {
			for _, n := range []int{256, 512, 2048} {
				for _, tokens := range []int{1, 2, 4, 6, 8} {
					b.Run(fmt.Sprintf("%s/%d/%d/%d", set.Name, f, n, tokens), func(b *testing.B) {
						const rows = 24
						w := mat.Weights{Data: make([]byte, rows*n*f.Size()), Stride: n * f.Size(), Format: f}
						x, y := make([]float32, tokens*n), make([]float32, rows*tokens)
						for b.Loop() {
							set.GEMV.Mul(mat.Floats{V: y, Stride: rows}, w, mat.Floats{V: x, Stride: n}, rows, tokens, n)
						}
						b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
					})
				}
			}
		}
	}
}
