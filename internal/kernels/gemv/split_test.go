package gemv_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestMulSplit: products are right, and have the same bits for all numbers of tokens and pieces of k.
func TestMulSplit(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		if !set.GEMV.HasSplit() {
			return
		}
		r := rand.New(rand.NewPCG(5, 2))
		for n := 1; n < 200; n += 1 + n/30 {
			rows, tokens := 1+n%11, 1+n%17
			data, values := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*(n+2)), n%5)
			w, x := mat.Weights{Data: data, Stride: 2 * (n + 2), Format: mat.BFloat16}, mat.Floats{V: kerneltest.Random(r, tokens*(n+3)), Stride: n + 3}
			want := kerneltest.BySplit(set, w, x, rows, tokens, n, gemv.SplitBlock*100)
			for i := range tokens {
				for j := range rows {
					sum, size := 0.0, 0.0
					for k := range n {
						p := float64(values[j*(n+2)+k]) * float64(x.V[i*x.Stride+k])
						sum, size = sum+p, size+math.Abs(p)
					}
					kerneltest.Near(t, fmt.Sprintf("n %d, token %d of %d, row %d of %d", n, i, tokens, j, rows), want[i*rows+j], sum, size)
				}
				alone := kerneltest.BySplit(set, w, mat.Floats{V: x.V[i*x.Stride:], Stride: x.Stride}, rows, 1, n, gemv.SplitBlock*100)
				for j, v := range alone {
					if math.Float32bits(v) != math.Float32bits(want[i*rows+j]) {
						t.Fatalf("n %d, token %d of %d, row %d: %g alone, %g together", n, i, tokens, j, v, want[i*rows+j])
					}
				}
			}
			for _, blocks := range []int{1, 2, 3} {
				for i, v := range kerneltest.BySplit(set, w, x, rows, tokens, n, gemv.SplitBlock*blocks) {
					if math.Float32bits(v) != math.Float32bits(want[i]) {
						t.Fatalf("n %d in pieces of %d blocks: token %d, row %d is %g, at once %g", n, blocks, i/rows, i%rows, v, want[i])
					}
				}
			}
		}
	})
}

// TestFirstSumsOfUntouchedMemoryTookTwentyTimesAsLong: with memory for the sums that no one had written to, each
// load under a mask that is off took the processor hundreds of cycles. Measurements of the kernel were wrong by that.
func TestFirstSumsOfUntouchedMemoryTookTwentyTimesAsLong(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		if !set.GEMV.HasSplit() || set.GEMV.SplitGroup(8) != 8 {
			return
		}
		const rows, tokens, n = 12, 8, 64
		r := rand.New(rand.NewPCG(5, 2))
		data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), 0)
		x := make([]float32, tokens*set.GEMV.SplitFloats(n))
		set.GEMV.SplitTokens(x, mat.Floats{V: kerneltest.Random(r, tokens*n), Stride: n}, tokens, n)
		p := gemv.SplitProduct{Y: mat.Floats{V: make([]float32, rows*tokens), Stride: rows}, W: mat.Weights{Data: data, Stride: 2 * n, Format: mat.BFloat16},
			X: x, Rows: rows, Tokens: tokens, N: n, Last: true}
		fastest := func(sums []float32) time.Duration {
			p.Sums = sums
			best := time.Hour
			for range 200 {
				begin := time.Now()
				set.GEMV.MulSplit(p)
				best = min(best, time.Since(begin))
			}
			return best
		}
		block, err := hostmem.Alloc(nil, hostmem.Other, 1<<20) // fresh memory from the system
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = block.Release() }() // held once
		floats := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(block.Bytes()))), set.GEMV.SplitSums(rows, tokens))
		untouched := fastest(floats)
		for i := range floats {
			floats[i] = 0
		}
		if touched := fastest(floats); untouched > 4*touched {
			t.Errorf("took %v with untouched memory and %v with touched, want about the same", untouched, touched)
		}
	})
}

// BenchmarkMulHalves is products of weights in the caches.
func BenchmarkMulHalves(b *testing.B) {
	for _, set := range kerneltest.Variants() {
		if set.Name != "avx512" && set.Name != "avx2" {
			continue
		}
		const rows, n = 24, 704
		for tokens := 1; tokens <= set.GEMV.SplitGroup(8); tokens *= 2 {
			b.Run(fmt.Sprintf("%s/%d", set.Name, tokens), func(b *testing.B) {
				w := mat.Weights{Data: make([]byte, rows*n*2), Stride: n * 2, Format: mat.BFloat16}
				x, y, sums := make([]float32, tokens*n), make([]float32, rows*tokens), make([]float32, set.GEMV.SplitSums(rows, tokens))
				for b.Loop() {
					set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: y, Stride: rows}, W: w, X: x, Sums: sums, Rows: rows, Tokens: tokens, N: n, K: 32, Last: false})
				}
				b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
			})
		}
	}
}
