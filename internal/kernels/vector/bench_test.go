package vector_test

import (
	"testing"

	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// BenchmarkPointwise are the kernels with exp.
func BenchmarkPointwise(b *testing.B) {
	for _, set := range kerneltest.Variants() {
		x, y := make([]float32, 4096), make([]float32, 4096)
		b.Run(set.Name+"/gate", func(b *testing.B) {
			for b.Loop() {
				set.Vector.Gate(y, x, x, 1, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/elem")
		})
		b.Run(set.Name+"/gelu", func(b *testing.B) {
			for b.Loop() {
				set.Vector.GELU(y, x)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/elem")
		})
		b.Run(set.Name+"/tanh", func(b *testing.B) {
			for b.Loop() {
				set.Vector.Tanh(x, 1, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/elem")
		})
		b.Run(set.Name+"/sigmoid", func(b *testing.B) {
			for b.Loop() {
				set.Vector.Sigmoid(y, x)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/elem")
		})
		b.Run(set.Name+"/expsum", func(b *testing.B) {
			for b.Loop() {
				clear(x)
				set.Vector.ExpSum(x, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/elem")
		})
	}
}
