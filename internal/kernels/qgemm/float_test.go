package qgemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestMulBands: products have the bits of SumPanels, for any number of rows and tokens, from any
// row and column on, however the columns are cut.
func TestMulBands(t *testing.T) {
	const tokens, width = 19, 160
	random := rand.New(rand.NewPCG(31, 32))
	for name, packing := range kerneltest.BlockPackings {
		for _, height := range []int{139, 64, 32, 16, 9, 1} {
			p, values := kerneltest.Interleaved(random, packing, height, width)
			for _, c := range []struct{ row, step, col, rows, n int }{
				{0, 1, 0, height, width}, {1, 2, 32, (height - 1) / 2, 96}, {height - 1, 1, 128, 1, 32}, {2, 1, 0, height - 3, width}, {16, 1, 0, height - 21, 64},
			} {
				if c.rows <= 0 {
					continue
				}
				x := make([]float32, tokens*c.n)
				for k := range x {
					x[k] = float32(random.NormFloat64() * math.Ldexp(1, k/c.n*5-40))
				}
				for _, s := range kerneltest.Variants() {
					what := fmt.Sprintf("%s by %s, %d rows, %+v", name, s.Name, height, c)
					want := kerneltest.PanelSums(&s, values, width, c.row, c.step, c.col, c.rows, x, tokens, c.n)
					in := mat.Floats{V: x, Stride: c.n}
					for _, some := range []int{tokens, 1, 2, 3, 4, 7, 8} {
						y := mat.Floats{V: make([]float32, some*c.rows), Stride: c.rows}
						s.QGEMM.MulInterleaved(y, quant.View{Packed: p, Row: c.row, Step: c.step, Col: c.col, Rows: c.rows, Cols: 32}, in, some, false)
						s.QGEMM.MulInterleaved(y, quant.View{Packed: p, Row: c.row, Step: c.step, Col: c.col + 32, Rows: c.rows, Cols: c.n - 32}, kerneltest.From(in, min(32, len(x)-1)), some, true)
						kerneltest.SameFloats(t, what, y.V, want[:some*c.rows])
					}
				}
			}
		}
	}
}

// TestMulBandsNonFinite: a product with infinities or NaN is not finite either.
func TestMulBandsNonFinite(t *testing.T) {
	for _, s := range kerneltest.Variants() {
		for name, packing := range kerneltest.BlockPackings {
			p, _ := kerneltest.Interleaved(rand.New(rand.NewPCG(1, 1)), packing, 16, 64)
			for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 1e-42} {
				x, y := make([]float32, 64), make([]float32, 16)
				x[45] = float32(v)
				s.QGEMM.MulInterleaved(mat.Floats{V: y, Stride: 16}, quant.View{Packed: p, Step: 1, Rows: 16, Cols: 64}, mat.Floats{V: x, Stride: 64}, 1, false)
				if finite := math.Abs(v) < 1; finite != (math.Abs(float64(y[3])) < 1e-36) {
					t.Errorf("%s, %s: an input of %v gives %v", s.Name, name, v, y[3])
				}
			}
		}
	}
}

// TestWidenBands: panels are those of the values, or are left alone.
func TestWidenBands(t *testing.T) {
	const height, width = 37, 160
	random := rand.New(rand.NewPCG(41, 42))
	for _, s := range kerneltest.Variants() {
		for name, packing := range kerneltest.BlockPackings {
			p, values := kerneltest.Interleaved(random, packing, height, width)
			lanes := s.GEMM.PanelLanes()
			for _, c := range []struct {
				row, step, col, rows, n int
				done                    bool
			}{{0, 1, 0, lanes, width, true}, {16, 1, 32, 16, 96, true}, {32, 1, 0, 5, 64, false}, {3, 1, 64, 16, 32, false}, {0, 2, 0, 16, 32, false}, {0, 1, 0, lanes - 1, 32, false}} {
				got, want := make([]float32, c.n*lanes), make([]float32, c.n*lanes)
				if done := s.QGEMM.WidenInterleaved(got, quant.View{Packed: p, Row: c.row, Step: c.step, Col: c.col, Rows: c.rows, Cols: c.n}); done != c.done {
					t.Fatalf("%s, %s, %+v: done is %v", s.Name, name, c, done)
				}
				for i := range lanes {
					for k := 0; k < c.n && c.done; k++ {
						want[k*lanes+i] = values[(c.row+i)*width+c.col+k]
					}
				}
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("%s, %s, %+v: element %d is %g, want %g", s.Name, name, c, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// BenchmarkMulBands is tokens through weights that no cache holds, on one and two threads, in bytes
// of weights.
func BenchmarkMulBands(b *testing.B) {
	const size, width, unit = 1 << 28, 2048, 64
	for _, s := range kerneltest.Variants() {
		if s.Name != "avx512" && s.Name != "avx2" { // the others have theirs
			continue
		}
		for name, packing := range kerneltest.BlockPackings {
			rows := size / width / unit * unit
			p := &quant.Packed{Packing: packing, Codes: make([]byte, rows*width/32*packing.BlockBytes()), Width: width, Height: rows}
			for i := range p.Codes {
				p.Codes[i] = byte(i * 7 % 113)
			}
			for _, tokens := range []int{1, 2, 4, 8} {
				x := mat.Floats{V: make([]float32, tokens*width), Stride: width}
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%s/%d/%d", name, s.Name, tokens, threads), func(b *testing.B) {
						b.SetBytes(int64(len(p.Codes)))
						for b.Loop() {
							var all sync.WaitGroup
							for i := range threads {
								all.Go(func() {
									y := mat.Floats{V: make([]float32, tokens*unit), Stride: unit}
									for u := i * rows / unit / threads; u < (i+1)*rows/unit/threads; u++ {
										s.QGEMM.MulInterleaved(y, quant.View{Packed: p, Row: u * unit, Step: 1, Rows: unit, Cols: width}, x, tokens, false)
									}
								})
							}
							all.Wait()
						}
					})
				}
			}
		}
	}
}
