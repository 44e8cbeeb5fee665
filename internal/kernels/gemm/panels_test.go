package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

func TestMulPanels(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for n := 1; n < 40; n++ {
			rows, cols := 1+n*3%37, 1+n*5%(2*set.GEMM.PanelLanes())
			a, b, c := kerneltest.Random(r, rows*n), kerneltest.Random(r, n*cols), kerneltest.Random(r, rows*(cols+3))
			before := append([]float32{}, c...)
			add := n%2 == 0
			set.GEMM.MulPanels(gemm.Panels{C: mat.Floats{V: c, Stride: cols + 3}, A: kerneltest.PanelsOf(set, kerneltest.Pack(set, mat.Floats{V: a, Stride: n}, true, set.GEMM.PanelRows(), rows, n), n), B: kerneltest.PanelsOf(set, kerneltest.Pack(set, mat.Floats{V: b, Stride: cols}, false, set.GEMM.PanelLanes(), cols, n), n), Rows: rows, Cols: cols, N: n, Add: add})
			for i := range rows {
				for j := range cols + 3 {
					got, want, size := c[i*(cols+3)+j], 0.0, 0.0
					if j >= cols || add {
						want = float64(before[i*(cols+3)+j])
						size = math.Abs(want)
					}
					for k := 0; k < n && j < cols; k++ {
						p := float64(a[i*n+k]) * float64(b[k*cols+j])
						want, size = want+p, size+math.Abs(p)
					}
					kerneltest.Near(t, fmt.Sprintf("n %d, %d by %d, element %d %d", n, rows, cols, i, j), got, want, size)
				}
			}
		}
	})
}

// TestPanelsPack compares the two ways to the same panel.
func TestPanelsPack(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r, lanes := rand.New(rand.NewPCG(1, 1)), set.GEMM.PanelLanes()
		for n := 1; n < 40; n++ {
			for width := 1; width <= lanes; width++ {
				x := kerneltest.Random(r, n*width)
				turned := make([]float32, n*width)
				for k := range n {
					for i := range width {
						turned[i*n+k] = x[k*width+i]
					}
				}
				lines, columns := kerneltest.Random(r, n*lanes), kerneltest.Random(r, n*lanes)
				set.GEMM.PackLines(mat.Floats{V: lines}, mat.Floats{V: x, Stride: width}, width, lanes, n)
				set.GEMM.PackColumns(columns, mat.Floats{V: turned, Stride: n}, width, n)
				for k := range n {
					for i := range lanes {
						want := float32(0)
						if i < width {
							want = x[k*width+i]
						}
						if lines[k*lanes+i] != want || columns[k*lanes+i] != want {
							t.Fatalf("n %d, width %d: element %d %d is %g and %g, want %g", n, width, k, i, lines[k*lanes+i], columns[k*lanes+i], want)
						}
					}
				}
			}
		}
	})
}

// TestPackLinesFillsPanels compares panels that are filled together with each alone.
func TestPackLinesFillsPanels(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r, lanes := rand.New(rand.NewPCG(1, 1)), set.GEMM.PanelLanes()
		for width := 1; width < 5*lanes; width++ {
			for _, high := range []int{1, set.GEMM.PanelRows(), lanes} {
				n, stride := 1+width%7, width+width%3
				panels, size := mat.CeilDiv(width, high), n*lanes
				x, together := kerneltest.Random(r, n*stride), kerneltest.Random(r, panels*(size+3))
				before := append([]float32{}, together...)
				set.GEMM.PackLines(mat.Floats{V: together, Stride: size + 3}, mat.Floats{V: x, Stride: stride}, width, high, n)
				for p := range panels {
					copy(before[p*(size+3):], kerneltest.Pack(set, mat.Floats{V: x[p*high:], Stride: stride}, false, lanes, min(high, width-p*high), n)[:size])
				}
				if !slices.Equal(together, before) {
					t.Fatalf("width %d, panels of %d, %d terms: got %v, want %v", width, high, n, together, before)
				}
			}
		}
	})
}

// TestMulPanelsKeepsNaN: a NaN spoils its row and column, nothing else.
func TestMulPanelsKeepsNaN(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		const rows, cols, n = 9, 11, 5
		a, b, c := make([]float32, rows*n), make([]float32, n*cols), make([]float32, rows*cols)
		a[3*n+2], b[4*cols+7] = float32(math.NaN()), float32(math.NaN())
		set.GEMM.MulPanels(gemm.Panels{C: mat.Floats{V: c, Stride: cols}, A: kerneltest.PanelsOf(set, kerneltest.Pack(set, mat.Floats{V: a, Stride: n}, true, set.GEMM.PanelRows(), rows, n), n), B: kerneltest.PanelsOf(set, kerneltest.Pack(set, mat.Floats{V: b, Stride: cols}, false, set.GEMM.PanelLanes(), cols, n), n), Rows: rows, Cols: cols, N: n, Add: false})
		for i, v := range c {
			if is, want := v != v, i/cols == 3 || i%cols == 7; is != want {
				t.Errorf("element %d %d is %g", i/cols, i%cols, v)
			}
		}
	})
}

// BenchmarkMulPanels is one thread's rate with operands that its caches hold.
func BenchmarkMulPanels(b *testing.B) {
	for _, set := range kerneltest.Variants() {
		if set.Name == "amx" || set.Name == "avx512bf16" {
			continue // avx512
		}
		const rows, n = 168, 256
		cols := 2 * set.GEMM.PanelLanes()
		left, right := make([]float32, mat.CeilDiv(rows, set.GEMM.PanelRows())*n*set.GEMM.PanelLanes()), make([]float32, n*cols)
		c := make([]float32, rows*cols)
		b.Run(set.Name, func(b *testing.B) {
			for b.Loop() {
				set.GEMM.MulPanels(gemm.Panels{C: mat.Floats{V: c, Stride: cols}, A: kerneltest.PanelsOf(&set, left, n), B: kerneltest.PanelsOf(&set, right, n), Rows: rows, Cols: cols, N: n, Add: true})
			}
			b.ReportMetric(2*float64(rows*cols*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}
