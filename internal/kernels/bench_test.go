package kernels

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/kernels/mat"
)

// BenchmarkRead is the roof of BenchmarkGEMV: it reads as much memory and adds it up.
func BenchmarkRead(b *testing.B) {
	set := &variants()[0]
	x := make([]float32, 1<<25)
	for i := range x {
		x[i] = 1
	}
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		for i := 0; i < len(x); i += 1 << 15 {
			set.Vector.SumSquares(x[i:i+1<<15], 0)
		}
	}
}

// BenchmarkGEMV is one token over a matrix far larger than the caches, in pieces of
// 128 KiB.
func BenchmarkGEMV(b *testing.B) {
	const n, rows = 2048, 1 << 15
	for _, set := range variants() {
		for f := range mat.Formats {
			b.Run(fmt.Sprintf("%s/%d", set.Name, f), func(b *testing.B) {
				w := mat.Weights{Data: make([]byte, rows*n*f.Size()), Stride: n * f.Size(), Format: f}
				for i := range w.Data {
					w.Data[i] = byte(i)
				}
				x, y := make([]float32, n), make([]float32, rows)
				chunk := 128 << 10 / w.Stride
				b.SetBytes(int64(len(w.Data)))
				for b.Loop() {
					for r := 0; r < rows; r += chunk {
						part := mat.Weights{Data: w.Data[r*w.Stride:], Stride: w.Stride, Format: f}
						set.GEMV.Mul(mat.Floats{V: y[r:], Stride: rows}, part, mat.Floats{V: x, Stride: n}, chunk, 1, n)
					}
				}
			})
		}
	}
}

// BenchmarkTile is the work of prefill on weights and activations in the caches.
func BenchmarkTile(b *testing.B) {
	const n, rows, tokens = 2048, 32, 96
	for _, set := range variants() {
		for f := range mat.Formats {
			b.Run(fmt.Sprintf("%s/%d", set.Name, f), func(b *testing.B) {
				w := mat.Weights{Data: make([]byte, rows*n*f.Size()), Stride: n * f.Size(), Format: f}
				x, y := make([]float32, n*tokens), make([]float32, rows*tokens)
				for b.Loop() {
					set.GEMV.Mul(mat.Floats{V: y, Stride: rows}, w, mat.Floats{V: x, Stride: n}, rows, tokens, n)
				}
				b.ReportMetric(2*n*rows*tokens/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}

// BenchmarkPointwise are the kernels with exp.
func BenchmarkPointwise(b *testing.B) {
	for _, set := range variants() {
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
		b.Run(set.Name+"/expsum", func(b *testing.B) {
			for b.Loop() {
				clear(x)
				set.Vector.ExpSum(x, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/elem")
		})
	}
}
