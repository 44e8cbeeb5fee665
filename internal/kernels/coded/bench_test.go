package coded_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// benchPairs reports how many times faster one thread is with coded weights, and with weights that are
// decoded to memory first.
func benchPairs(b *testing.B, set *kernels.Set, rows, cols int) {
	const some = 1024
	r := rand.New(rand.NewPCG(6, 19))
	words := kerneltest.Uncached(b)[:2*rows*cols]
	sample := trained(r, some, cols)
	data := kerneltest.Uncached(b)[:rows*coded.RowBytes(cols)]
	part := make([]byte, some*coded.RowBytes(cols))
	if err := coded.Encode(part, sample, some, cols); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < rows/some*some; i += some {
		copy(words[2*i*cols:], sample)
		copy(data[i*coded.RowBytes(cols):], part)
	}
	rows = rows / some * some
	m := coded.Matrix{Data: data, Rows: rows, Cols: cols}
	x, y := make([]uint32, cols/2), make([]float32, rows)
	set.Vector.RoundPairs(x, kerneltest.Random(r, cols))
	buffer := make([]byte, 16*2*cols)
	var took [3]time.Duration
	b.SetBytes(int64(2 * rows * cols))
	for b.Loop() {
		const step = 64
		start := time.Now()
		for i := 0; i < rows; i += step {
			set.GEMV.MulPairs(mat.Floats{V: y[i:], Stride: step}, mat.Weights{Data: words[2*i*cols:], Stride: 2 * cols, Format: mat.BFloat16}, mat.Pairs{V: x, Stride: len(x)}, step, 1, cols)
		}
		plain := time.Now()
		for i := 0; i < rows; i += step {
			set.Coded.MulPairs(y[i:][:step], &m, i, x)
		}
		fused := time.Now()
		for i := 0; i < rows; i += 16 {
			set.Coded.Decode(buffer, &m, i, 16)
			set.GEMV.MulPairs(mat.Floats{V: y[i:], Stride: step}, mat.Weights{Data: buffer, Stride: 2 * cols, Format: mat.BFloat16}, mat.Pairs{V: x, Stride: len(x)}, 16, 1, cols)
		}
		took[0], took[1], took[2] = took[0]+plain.Sub(start), took[1]+fused.Sub(plain), took[2]+time.Since(fused)
	}
	b.ReportMetric(float64(b.N*rows*cols)/took[1].Seconds()/1e9, "codedGw/s")
	b.ReportMetric(float64(b.N*rows*cols)/took[0].Seconds()/1e9, "plainGw/s")
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "fused-x")
	b.ReportMetric(took[0].Seconds()/took[2].Seconds(), "decoded-x")
}
