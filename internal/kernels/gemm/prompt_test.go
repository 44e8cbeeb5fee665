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

// TestWidenColumns: a panel is the transpose of rows, exactly, with zeros beyond them.
func TestWidenColumns(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r, lanes := rand.New(rand.NewPCG(1, 2)), set.GEMM.PanelLanes()
		for n := 1; n < 100; n += 1 + n/20 {
			for f := range mat.Formats {
				rows := n % (lanes + 1)
				data, values := kerneltest.Store(f, kerneltest.Random(r, max(rows, 1)*(n+3)), n%5)
				dst := kerneltest.Random(r, n*lanes)
				set.GEMM.WidenColumns(dst, mat.Weights{Data: data, Stride: (n + 3) * f.Size(), Format: f}, rows, n, 64*n)
				for k := range n {
					for i := range lanes {
						want := float32(0)
						if i < rows {
							want = values[i*(n+3)+k]
						}
						if got := dst[k*lanes+i]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("format %d, n %d, rows %d: element %d of row %d is %g, want %g", f, n, rows, k, i, got, want)
						}
					}
				}
			}
		}
	})
}

// TestSumPanels: a sum has the same bits whatever the other rows, columns and pieces of k,
// and is right.
func TestSumPanels(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r, lanes, high := rand.New(rand.NewPCG(3, 1)), set.GEMM.PanelLanes(), set.GEMM.PanelRows()
		for n := 1; n < 40; n += 3 {
			rows, cols := 1+n*7%45, 2*lanes
			a, b := kerneltest.Random(r, rows*n), kerneltest.Random(r, n*cols)
			left, right := kerneltest.Pack(set, mat.Floats{V: a, Stride: n}, true, high, rows, n), kerneltest.Pack(set, mat.Floats{V: b, Stride: cols}, false, lanes, cols, n)
			want := make([]float32, rows*cols)
			set.GEMM.SumPanels(gemm.PanelProduct{C: mat.Floats{V: want, Stride: cols}, A: left, AStride: n * lanes, B: right, Rows: rows, Cols: cols, N: n, Add: false})
			for i := range rows {
				for j := range cols {
					sum, size := 0.0, 0.0
					for k := range n {
						p := float64(a[i*n+k]) * float64(b[k*cols+j])
						sum, size = sum+p, size+math.Abs(p)
					}
					kerneltest.Near(t, fmt.Sprintf("n %d, element %d %d", n, i, j), want[i*cols+j], sum, size)
				}
			}
			for _, part := range []int{1, 2, 5, n} {
				few, less := 1+r.IntN(rows), 1+r.IntN(cols)
				got := kerneltest.Random(r, few*(less+1))
				before := append([]float32{}, got...)
				for k := 0; k < n; k += part {
					m := min(part, n-k)
					piece := append(append([]float32{}, right[k*lanes:][:m*lanes]...), right[(n+k)*lanes:][:m*lanes]...)
					set.GEMM.SumPanels(gemm.PanelProduct{C: mat.Floats{V: got, Stride: less + 1}, A: left[k*lanes:], AStride: n * lanes, B: piece, Rows: few, Cols: less, N: m, Add: k > 0})
				}
				for i := range few {
					for j := range less {
						if g, w := got[i*(less+1)+j], want[i*cols+j]; math.Float32bits(g) != math.Float32bits(w) {
							t.Fatalf("n %d in pieces of %d, %d by %d: element %d %d is %g, alone %g", n, part, few, less, i, j, g, w)
						}
					}
					if i < few-1 && got[i*(less+1)+less] != before[i*(less+1)+less] {
						t.Fatalf("n %d, %d by %d: a column too many in row %d", n, few, less, i)
					}
				}
			}
		}
	})
}

// BenchmarkSumPanels is a step of prompts of many and few tokens with their weights packed, in
// the share of time that is not packing too.
func BenchmarkSumPanels(b *testing.B) {
	for _, set := range kerneltest.Variants() {
		if set.Name == "amx" || set.Name == "avx512bf16" {
			continue // avx512
		}
		const n = 256
		lanes, high := set.GEMM.PanelLanes(), set.GEMM.PanelRows()
		for _, tokens := range []int{1, 8, 24, 168} {
			b.Run(fmt.Sprintf("%s/%d", set.Name, tokens), func(b *testing.B) {
				w := mat.Weights{Data: make([]byte, 2*lanes*n*2), Stride: n * 2, Format: mat.BFloat16}
				x, panels := make([]float32, mat.CeilDiv(tokens, high)*n*lanes), make([]float32, 2*lanes*n)
				y := make([]float32, tokens*2*lanes)
				for b.Loop() {
					for half := range 2 {
						part := w
						part.Data = w.Data[half*lanes*w.Stride:]
						set.GEMM.WidenColumns(panels[half*lanes*n:], part, lanes, n, 0)
					}
					set.GEMM.SumPanels(gemm.PanelProduct{C: mat.Floats{V: y, Stride: 2 * lanes}, A: x, AStride: n * lanes, B: panels, Rows: tokens, Cols: 2 * lanes, N: n, Add: true})
				}
				b.ReportMetric(2*float64(tokens*2*lanes*n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
			})
		}
	}
}
