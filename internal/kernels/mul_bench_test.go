package kernels

import (
	"fmt"
	"testing"
)

// BenchmarkMul is products of weights in the caches.
func BenchmarkMul(b *testing.B) {
	for _, set := range available() {
		if set.Name != "avx512" && set.Name != "avx2" {
			continue
		}
		for _, f := range []Format{BFloat16, Float32} {
			for _, n := range []int{256, 512, 2048} {
				for _, tokens := range []int{1, 2, 4, 6, 8} {
					b.Run(fmt.Sprintf("%s/%d/%d/%d", set.Name, f, n, tokens), func(b *testing.B) {
						const rows = 24
						w := Weights{make([]byte, rows*n*f.Size()), n * f.Size(), f}
						x, y := make([]float32, tokens*n), make([]float32, rows*tokens)
						for b.Loop() {
							set.Mul(Floats{y, rows}, w, Floats{x, n}, rows, tokens, n)
						}
						b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
					})
				}
			}
		}
	}
}
