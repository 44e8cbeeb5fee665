//go:build linux

package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestIntsStayInside is TestStaysInside for weights in bands and products of integers, by as many
// bands and tokens as any kernel passes at once.
func TestIntsStayInside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for _, rows := range []int{1, 3, 8, 9, 15, 16, 17, 31, 32, 48, 75, 139} {
			for blocks := 1; blocks <= 3; blocks++ {
				for _, packing := range []quant.Packing{quant.Q8, quant.Q4} {
					width, each := 32*blocks, blocks*packing.BlockBytes()
					lying := kerneltest.Guarded(t, rows*each)
					copy(lying, kerneltest.RandomBlocks(random, packing, rows*blocks))
					p := &quant.Packed{Packing: packing, Codes: kerneltest.Guarded(t, rows*each), Width: width, Height: rows}
					set.Quant.Interleave(packing, p.Codes, lying, each, rows, blocks)
					values := kerneltest.GuardedFloats(t, rows*width)
					set.Quant.Unpack(mat.Floats{V: values, Stride: width}, quant.View{Packed: p, Rows: rows, Cols: width}, nil)
					if set.BF16 {
						set.QGEMM.Pack(kerneltest.GuardedWords(t, gemm.PanelWords(width)), quant.View{Packed: p, Step: 1, Rows: rows, Cols: width}, nil)
					}
					if !set.QGEMM.HasInt8() {
						continue
					}
					for _, tokens := range []int{1, 2, 4, 6, 8, 9, 24} {
						intsStayInside(t, set, p, rows, tokens)
					}
				}
			}
		}
	})
}

func intsStayInside(t *testing.T, set *kernels.Set, p *quant.Packed, rows, tokens int) {
	words := set.QGEMM.Int8Words(p.Packing, p.Width)
	x, in := kerneltest.GuardedWords(t, tokens*words), kerneltest.GuardedFloats(t, p.Width)
	for i := range tokens {
		set.QGEMM.RoundInt8(p.Packing, x[i*words:], in)
	}
	y := kerneltest.GuardedFloats(t, tokens*rows)
	set.QGEMM.MulInt8(mat.Floats{V: y, Stride: rows}, quant.View{Packed: p, Step: 1, Rows: rows, Cols: p.Width}, mat.Pairs{V: x, Stride: words}, tokens, false)
	set.QGEMM.MulInt8(mat.Floats{V: y, Stride: rows}, quant.View{Packed: p, Step: 2, Rows: mat.CeilDiv(rows, 2), Cols: p.Width}, mat.Pairs{V: x, Stride: words}, tokens, true)
}

// TestQuantisedStaysInside is TestStaysInside for quantised weights: codes, scales and
// zeros end where memory ends.
func TestQuantisedStaysInside(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for n := 1; n <= 9; n++ {
			rows := 1 + n%6
			for _, p := range []*quant.Packed{
				{Packing: quant.E4M3, Width: 19 * n, Rows: 128, Columns: 64},
				{Packing: quant.E4M3, Width: 32 * n, Rows: 128, Columns: 64},
				{Packing: quant.MXFP4, Width: 32 * n, Rows: 1, Columns: 32},
				{Packing: quant.Int4Rows, Width: 8 * n, Rows: 32, Columns: 1},
				{Packing: quant.Int4Columns, Width: 8 * n, Rows: 32, Columns: 1},
			} {
				size := rows * p.Width / 2
				switch p.Packing {
				case quant.E4M3:
					size = rows * p.Width
					p.Scales, p.ScaleFormat = kerneltest.Guarded(t, 4*mat.CeilDiv(p.Width, 64)), mat.Float32
				case quant.MXFP4:
					p.Scales = kerneltest.Guarded(t, rows*n)
				case quant.Int4Rows:
					size = mat.CeilDiv(rows, 8) * p.Width * 4
					fallthrough
				case quant.Int4Columns:
					p.Scales, p.ScaleFormat, p.Zeros = kerneltest.Guarded(t, 2*p.Width), mat.Float16, kerneltest.Guarded(t, p.Width/2)
				}
				p.Codes = kerneltest.Guarded(t, size)
				dst, scratch := kerneltest.GuardedFloats(t, rows*p.Width), make([]float32, quant.UnpackScratch)
				set.Quant.Unpack(mat.Floats{V: dst, Stride: p.Width}, quant.View{Packed: p, Rows: rows, Cols: p.Width}, scratch)
				set.Quant.Unpack(mat.Floats{V: dst, Stride: p.Width}, quant.View{Packed: p, Row: rows - 1, Col: p.Width - 1, Rows: 1, Cols: 1}, scratch)
				if set.BF16 {
					set.QGEMM.Pack(kerneltest.GuardedWords(t, gemm.PanelWords(p.Width)), quant.View{Packed: p, Step: 1, Rows: rows, Cols: p.Width}, scratch)
				}
			}
		}
	})
}

// TestNibblesStayInside is TestStaysInside for packs of whole blocks of weights of four bits.
func TestNibblesStayInside(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		if !set.BF16 {
			return
		}
		for _, packing := range []quant.Packing{quant.Int4Rows, quant.Int4Columns} {
			for rows := gemm.BlockK; rows <= 3*gemm.BlockK; rows += gemm.BlockK {
				for width := gemm.PackRows; width <= 40; width += 8 {
					groups := mat.CeilDiv(rows, 2*gemm.BlockK)
					p := &quant.Packed{Packing: packing, Width: width, Rows: 2 * gemm.BlockK, Columns: 1, ScaleFormat: mat.Float16}
					p.Codes, p.Scales, p.Zeros = kerneltest.Guarded(t, rows*width/2), kerneltest.Guarded(t, 2*groups*width), kerneltest.Guarded(t, groups*width/2)
					set.QGEMM.PackTransposed(kerneltest.GuardedWords(t, gemm.PanelWords(rows)), quant.View{Packed: p, Col: width - gemm.PackRows, Step: 1, Rows: gemm.PackRows, Cols: rows}, nil)
				}
			}
		}
	})
}
