package qgemm_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// codesCases runs test over packings, blocks and sizes that Codes takes.
func codesCases(t *testing.T, test func(t *testing.T, what string, set *kernels.Set, p *quant.Packed, row, step, rows, n int)) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(7, 3))
		for i, n := range []int{32, 64, 96, 128, 160, 256, 320, 416, 1024, 1056, 1120, 2880} {
			rows, row, step := 1+i*7%29, i%5, 1+i%2
			width := n + i%3*32
			all := row + (rows-1)*step + 1
			for _, p := range []*quant.Packed{
				kerneltest.Minifloats(r, quant.MXFP4, all, width, 1, 32),
				kerneltest.Minifloats(r, quant.E4M3, all, width, 128, 128),
				kerneltest.Minifloats(r, quant.E4M3, all, width, 6, 32),
				kerneltest.Minifloats(r, quant.E4M3, all, width, 1, width),
				kerneltest.Minifloats(r, quant.E4M3, all, width, all, width+5),
				kerneltest.Minifloats(r, quant.E2M1Powers, all, width, 1, 32),
				kerneltest.Minifloats(r, quant.E4M3Powers, all, width, 16, 64),
				kerneltest.Minifloats(r, quant.E4M3Powers, all, width, 1, width),
			} {
				if set.QGEMM.HasMinifloat(p, 0, n) {
					test(t, fmt.Sprintf("packing %d in blocks of %d × %d, %d rows of %d from %d by %d", p.Packing, p.Rows, p.Columns, rows, n, row, step), set, p, row, step, rows, n)
				}
			}
		}
	})
}

// TestMulCodes: products are right, with the same bits in a group of any size and whatever the rows.
func TestMulCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	reference := *kernels.For(isa.Portable())
	codesCases(t, func(t *testing.T, what string, set *kernels.Set, p *quant.Packed, row, step, rows, n int) {
		const tokens = 15
		x := mat.Floats{V: kerneltest.Random(r, tokens*(n+3)), Stride: n + 3}
		got := kerneltest.MulCodes(set, p, row, step, rows, x, tokens, n)
		values := make([]float32, n)
		for j := range rows {
			reference.Quant.Unpack(mat.Floats{V: values, Stride: n}, quant.View{Packed: p, Row: row + j*step, Rows: 1, Cols: n}, make([]float32, quant.UnpackScratch))
			for i := range tokens {
				sum, size := 0.0, 0.0
				for k, v := range values {
					each := float64(v) * float64(x.V[i*x.Stride+k])
					sum, size = sum+each, size+math.Abs(each)
				}
				kerneltest.Near(t, fmt.Sprintf("%s: token %d, row %d", what, i, j), got[i*rows+j], sum, size)
			}
		}
		for i := range tokens {
			for j, v := range kerneltest.MulCodes(set, p, row, step, rows, mat.Floats{V: x.V[i*x.Stride:], Stride: x.Stride}, 1, n) {
				if math.Float32bits(v) != math.Float32bits(got[i*rows+j]) {
					t.Fatalf("%s: token %d, row %d is %g alone, %g among others", what, i, j, v, got[i*rows+j])
				}
			}
		}
		for _, group := range []int{1, 2, 5, 8} {
			for j := range rows {
				for i, v := range kerneltest.MulCodes(set, p, row+j*step, step, 1, x, group, n) {
					if math.Float32bits(v) != math.Float32bits(got[i*rows+j]) {
						t.Fatalf("%s: token %d of %d, row %d is %g alone, %g among others", what, i, group, j, v, got[i*rows+j])
					}
				}
			}
		}
	})
}

// TestMulCodesHasEveryCode: each code at each place is what Unpack makes of it, at scales of any
// size.
func TestMulCodesHasEveryCode(t *testing.T) {
	const n, rows = 160, 256
	scales := []float32{1, 0, 0x1p-100, 0x1p100, -0.25, float32(math.NaN())}
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(5, 9))
		for round := range 256 {
			p := &quant.Packed{Packing: quant.E4M3, Codes: make([]byte, rows*n), Width: n, Scales: make([]byte, 4*2), ScaleFormat: mat.Float32, Rows: 128, Columns: n}
			if round%2 == 0 {
				p = &quant.Packed{Packing: quant.MXFP4, Codes: make([]byte, rows*n/2), Width: n, Scales: make([]byte, rows*n/32), Rows: 1, Columns: 32}
			}
			if !set.QGEMM.HasMinifloat(p, 0, n) {
				return
			}
			at, tokens := r.IntN(n), 1+r.IntN(8)
			for i := range rows {
				if p.Packing == quant.E4M3 {
					p.Codes[i*n+at] = byte(i)
					binary.LittleEndian.PutUint32(p.Scales[i/128*4:], math.Float32bits(scales[(round/2+i/128)%len(scales)]))
				} else {
					p.Codes[(i*n+at)/2] = byte(i)
					for k := range n / 32 {
						p.Scales[i*n/32+k] = byte(127 + i)
					}
				}
			}
			x, want := make([]float32, tokens*n), make([]float32, 1)
			for i := range tokens {
				x[i*n+at] = float32(i + 1)
			}
			for i, g := range kerneltest.MulCodes(set, p, 0, 1, rows, mat.Floats{V: x, Stride: n}, tokens, n) {
				row, token := i%rows, i/rows
				set.Quant.Unpack(mat.Floats{V: want, Stride: 1}, quant.View{Packed: p, Row: row, Col: at, Rows: 1, Cols: 1}, nil)
				if w := want[0] * float32(token+1); g != w && !(g != g && w != w) {
					t.Fatalf("packing %d, code %#x at column %d, token %d of %d: %v, want %v", p.Packing, row, at, token, tokens, g, w)
				}
			}
		}
	})
}

// BenchmarkMulCodes is rows of codes in the second-level cache.
func BenchmarkMulCodes(b *testing.B) {
	const rows, n = 24, 4096
	r := rand.New(rand.NewPCG(5, 9))
	for _, set := range kerneltest.Variants() {
		for _, p := range []*quant.Packed{kerneltest.Minifloats(r, quant.E4M3, rows, n, 128, 128), kerneltest.Minifloats(r, quant.MXFP4, rows, n, 1, 32)} {
			if set.Name == "amx" || !set.QGEMM.HasMinifloat(p, 0, n) {
				continue
			}
			for tokens := 1; tokens <= set.QGEMM.MinifloatGroup(8); tokens *= 2 {
				b.Run(fmt.Sprintf("%s/%d/%d", set.Name, p.Packing, tokens), func(b *testing.B) {
					x, y := make([]float32, tokens*set.QGEMM.MinifloatFloats(p, n)), make([]float32, tokens*rows)
					scratch := make([]float32, set.QGEMM.MinifloatScratch(p, rows, tokens, n))
					b.SetBytes(int64(len(p.Codes)))
					for b.Loop() {
						set.QGEMM.MulMinifloat(mat.Floats{V: y, Stride: rows}, quant.View{Packed: p, Step: 1, Rows: rows, Cols: n}, x, scratch, tokens)
					}
					b.ReportMetric(2*float64(rows*tokens*n)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOPS")
				})
			}
		}
	}
}
