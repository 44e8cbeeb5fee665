package tensor

import (
	"fmt"
	"github.com/heftai/heft/internal/kernels"
	"testing"
)

func BenchmarkProducts(b *testing.B) {
	for _, s := range [][3]int{{2048, 288, 768}, {2048, 768, 768}, {2048, 768, 3072}, {128, 32000, 288}, {1024, 1024, 1024}} {
		T, R, N := s[0], s[1], s[2]
		x := make([]float32, T*N)
		w := make([]float32, R*N)
		y := make([]float32, T*R)
		tp := NewTape(Options{Threads: 1})
		run := func(name string, f func()) {
			b.Run(fmt.Sprint(name, s), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(2*float64(T)*float64(R)*float64(N)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
			})
		}
		run("nt", func() {
			tp.mulRows(kernels.Floats{V: y, Stride: R}, kernels.Floats{V: x, Stride: N}, stored(w, N), T, R, N)
		})
		run("nn", func() {
			tp.mixRows(kernels.Floats{V: x, Stride: N}, kernels.Floats{V: y, Stride: R}, 1, stored(w, N), R, T, N)
		})
		run("tn", func() {
			tp.mixRows(kernels.Floats{V: w, Stride: N}, kernels.Floats{V: y, Stride: 1}, R, stored(x, N), T, R, N)
		})
	}
}
