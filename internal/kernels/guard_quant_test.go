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
					set.Quant.Bands(packing, p.Codes, lying, each, rows, blocks)
					values := kerneltest.GuardedFloats(t, rows*width)
					set.Quant.Unpack(mat.Floats{V: values, Stride: width}, p, 0, 0, rows, width, nil)
					if set.BF16 {
						set.QGEMM.PackQuantised(kerneltest.GuardedWords(t, gemm.PanelWords(width)), p, 0, 1, 0, rows, width, nil)
					}
					if !set.QGEMM.Integers() {
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
	words := set.QGEMM.IntWords(p.Packing, p.Width)
	x, in := kerneltest.GuardedWords(t, tokens*words), kerneltest.GuardedFloats(t, p.Width)
	for i := range tokens {
		set.QGEMM.NarrowInts(p.Packing, x[i*words:], in)
	}
	y := kerneltest.GuardedFloats(t, tokens*rows)
	set.QGEMM.MulInts(mat.Floats{V: y, Stride: rows}, p, 0, 1, 0, rows, mat.Pairs{V: x, Stride: words}, tokens, p.Width, false)
	set.QGEMM.MulInts(mat.Floats{V: y, Stride: rows}, p, 0, 2, 0, mat.CeilDiv(rows, 2), mat.Pairs{V: x, Stride: words}, tokens, p.Width, true)
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
				{Packing: quant.NibbleRows, Width: 8 * n, Rows: 32, Columns: 1},
				{Packing: quant.NibbleColumns, Width: 8 * n, Rows: 32, Columns: 1},
			} {
				size := rows * p.Width / 2
				switch p.Packing {
				case quant.E4M3:
					size = rows * p.Width
					p.Scales, p.ScaleFormat = kerneltest.Guarded(t, 4*mat.CeilDiv(p.Width, 64)), mat.Float32
				case quant.MXFP4:
					p.Scales = kerneltest.Guarded(t, rows*n)
				case quant.NibbleRows:
					size = mat.CeilDiv(rows, 8) * p.Width * 4
					fallthrough
				case quant.NibbleColumns:
					p.Scales, p.ScaleFormat, p.Zeros = kerneltest.Guarded(t, 2*p.Width), mat.Float16, kerneltest.Guarded(t, p.Width/2)
				}
				p.Codes = kerneltest.Guarded(t, size)
				dst, x, scratch := kerneltest.GuardedFloats(t, rows*p.Width), kerneltest.GuardedFloats(t, p.Width), make([]float32, quant.UnpackScratch)
				set.Quant.Unpack(mat.Floats{V: dst, Stride: p.Width}, p, 0, 0, rows, p.Width, scratch)
				set.Quant.Unpack(mat.Floats{V: dst, Stride: p.Width}, p, rows-1, p.Width-1, 1, 1, scratch)
				if set.BF16 {
					set.QGEMM.PackQuantised(kerneltest.GuardedWords(t, gemm.PanelWords(p.Width)), p, 0, 1, 0, rows, p.Width, scratch)
				}
				if set.Quant.DotsPacked(p, 0) {
					set.Quant.DotPacked(kerneltest.GuardedFloats(t, rows), p, 0, 1, x, scratch)
					set.Quant.DotPacked(kerneltest.GuardedFloats(t, mat.CeilDiv(rows, 2)), p, 0, 2, x, scratch)
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
		for _, packing := range []quant.Packing{quant.NibbleRows, quant.NibbleColumns} {
			for rows := gemm.BlockK; rows <= 3*gemm.BlockK; rows += gemm.BlockK {
				for width := gemm.PackRows; width <= 40; width += 8 {
					groups := mat.CeilDiv(rows, 2*gemm.BlockK)
					p := &quant.Packed{Packing: packing, Width: width, Rows: 2 * gemm.BlockK, Columns: 1, ScaleFormat: mat.Float16}
					p.Codes, p.Scales, p.Zeros = kerneltest.Guarded(t, rows*width/2), kerneltest.Guarded(t, 2*groups*width), kerneltest.Guarded(t, groups*width/2)
					set.QGEMM.PackQuantisedTurned(kerneltest.GuardedWords(t, gemm.PanelWords(rows)), p, 0, width-gemm.PackRows, 1, gemm.PackRows, rows, nil)
				}
			}
		}
	})
}
