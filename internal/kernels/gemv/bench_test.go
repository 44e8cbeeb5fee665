package gemv_test

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// BenchmarkRead is the roof of BenchmarkGEMV: it reads as much memory and adds it up.
func BenchmarkRead(b *testing.B) {
	set := &kerneltest.Variants()[0]
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
	for _, set := range kerneltest.Variants() {
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
						set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y[r:], Stride: rows}, W: part, X: mat.Floats{V: x, Stride: n}, Rows: chunk, Tokens: 1, N: n})
					}
				}
			})
		}
	}
}

// BenchmarkMul is products of weights in the caches.
func BenchmarkMul(b *testing.B) {
	for _, set := range kerneltest.Variants() {
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
							set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows}, W: w, X: mat.Floats{V: x, Stride: n}, Rows: rows, Tokens: tokens, N: n})
						}
						b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
					})
				}
			}
		}
	}
}
