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

// TestRoundedStaysInside is TestStaysInside for products of rounded activations.
func TestRoundedStaysInside(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		for n := 1; n <= 70; n++ {
			rows, tokens, size := 1+n%gemm.PackRows, 1+n%gemm.PanelTokens, gemm.PanelWords(n)
			w := mat.Weights{Data: kerneltest.Guarded(t, rows*2*n), Stride: 2 * n, Format: mat.BFloat16}
			pairs, x := mat.Pairs{V: kerneltest.GuardedWords(t, tokens*mat.PairWords(n)), Stride: mat.PairWords(n)}, mat.Floats{V: kerneltest.GuardedFloats(t, tokens*n), Stride: n}
			for i := range tokens {
				set.Vector.RoundPairs(pairs.V[i*pairs.Stride:], x.V[i*n:][:n])
			}
			y := mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}
			set.GEMV.MulPairs(y, w, pairs, rows, tokens, n)
			packs, panels := kerneltest.GuardedWords(t, 2*size), kerneltest.GuardedWords(t, 2*size)
			for i := range 2 {
				set.GEMM.PackWeights(packs[i*size:], w, rows, n)
				set.GEMM.PackTokens(panels[i*size:], x, tokens, n)
			}
			blocks := mat.CeilDiv(n, gemm.BlockK)
			c := mat.Floats{V: kerneltest.GuardedFloats(t, 2*gemm.PackRows*2*gemm.PanelTokens), Stride: 2 * gemm.PanelTokens}
			one := mat.Floats{V: kerneltest.GuardedFloats(t, gemm.PackRows*gemm.PanelTokens), Stride: gemm.PanelTokens}
			for _, add := range []bool{false, true} {
				set.GEMM.Tile(gemm.Tiles{C: c, W: packs, WStride: size, X: panels, XStride: size, Blocks: blocks, Count: 1, Add: add})
				set.GEMM.Couple(gemm.Tiles{C: c, W: packs, WStride: size, X: panels, XStride: size, Blocks: blocks, Count: 1, Add: add})
				if set.AMX {
					set.GEMM.TilePack(gemm.Tiles{C: c, W: packs[size:], X: panels, XStride: size, Count: 2, Blocks: blocks, Add: add})
					set.GEMM.TilePack(gemm.Tiles{C: one, W: packs[size:], X: panels[size:], XStride: size, Count: 1, Blocks: blocks, Add: add})
				}
			}
			set.GEMM.TransposePack(packs, blocks)
			set.GEMM.TileFew(gemm.FewTiles{Y: y, W: packs, WStride: size, X: panels[size:], Blocks: blocks, Rows: rows, Tokens: tokens})
			set.GEMM.Transpose(y, one, nil, rows, tokens)
			set.GEMM.Transpose(y, one, kerneltest.GuardedFloats(t, rows), rows, tokens)
		}
	})
}

// TestTileRowsStaysInside is TestStaysInside for tiles of weights in place, which are fetched
// ahead.
func TestTileRowsStaysInside(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		for _, rows := range []int{16, 32, 48, 128, 144} {
			for _, blocks := range []int{1, 2, 3, 15, 16, 17, 33, 41} {
				n, size := blocks*gemm.BlockK, gemm.PanelWords(blocks*gemm.BlockK)
				w := mat.Weights{Data: kerneltest.Guarded(t, rows*2*n), Stride: 2 * n, Format: mat.BFloat16}
				for panels := 1; panels <= gemm.MostRowPanels; panels++ {
					x, c := kerneltest.GuardedWords(t, panels*size), kerneltest.GuardedFloats(t, rows*gemm.RowSums(panels))
					for quarters := range 5 {
						set.GEMM.TileRows(gemm.RowTiles{C: c, W: w, X: x, XStride: size, Panels: panels, Rows: rows, Blocks: blocks, Fetch: gemm.Fetch{Next: w.Data[len(w.Data)-1:], Done: 4 - quarters, Quarters: quarters}})
					}
				}
			}
		}
	})
}

// TestTileStepsStayInside is TestStaysInside for tiles of a step, which prefetches the next weights.
func TestTileStepsStayInside(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		for _, packs := range []int{2, 4} {
			for blocks := 1; blocks <= gemm.StepBlocks+1; blocks++ {
				for panels := 1; panels <= 3; panels++ {
					words, n := gemm.PanelWords(blocks*gemm.BlockK), blocks*gemm.BlockK
					last := mat.Weights{Data: kerneltest.Guarded(t, 2*n), Stride: 2 * n, Format: mat.BFloat16} // one row of many
					for _, next := range []mat.Weights{{}, last} {
						for _, add := range []bool{false, true} {
							c := kerneltest.GuardedFloats(t, panels*packs*gemm.PackRows*gemm.PanelTokens)
							set.GEMM.TileSteps(&gemm.StepTiles{C: c, W: kerneltest.GuardedWords(t, packs*words), X: kerneltest.GuardedWords(t, panels*words), Packs: packs, Blocks: blocks, Panels: panels, Add: add, Next: next})
						}
					}
				}
			}
		}
	})
}

// TestPackPieceStaysInside is TestStaysInside for the packs of a step.
func TestPackPieceStaysInside(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		for _, packs := range []int{2, 4} {
			for _, rows := range []int{1, 16, 17, 31, packs * gemm.PackRows} {
				for _, n := range []int{1, 31, 32, 33, 256} {
					w := mat.Weights{Data: kerneltest.Guarded(t, rows*2*n), Stride: 2 * n, Format: mat.BFloat16}
					set.GEMM.PackPiece(kerneltest.GuardedWords(t, packs*gemm.PanelWords(n)), w, rows, n, packs)
				}
			}
		}
	})
}

// TestStoreStepsStaysInside is TestStaysInside for sums of a step.
func TestStoreStepsStaysInside(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		for _, rows := range []int{1, 16, 30, 32, 64, 70} {
			for tokens := 1; tokens <= gemm.PanelTokens; tokens++ {
				const packs, apart = 2, 2 * gemm.PackRows * gemm.PanelTokens
				sums := gemm.StepSums{Y: mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}, C: kerneltest.GuardedFloats(t, mat.CeilDiv(rows, gemm.PackRows)*gemm.PackRows*gemm.PanelTokens), Stride: apart, Packs: packs, Rows: rows, Tokens: tokens}
				for _, sums.Past = range []bool{false, true} {
					for _, sums.Bias = range [][]float32{nil, kerneltest.GuardedFloats(t, rows)} {
						set.GEMM.StoreSteps(&sums)
					}
				}
			}
		}
	})
}

// TestRowLoopsStayInside is TestStaysInside for loops over rows.
func TestRowLoopsStayInside(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for n := 1; n <= 70; n++ {
			a, b, c := kerneltest.GuardedFloats(t, n), kerneltest.GuardedFloats(t, n), kerneltest.GuardedFloats(t, n)
			set.Vector.AtMost(a, b, 7)
			set.Vector.TimesClamped(a, b, c, 7)
			set.Vector.Times(a, b)
			set.Vector.ReLU(a, c)
			set.Vector.RotateInterleaved(kerneltest.GuardedFloats(t, 2*n), b, c)
			set.Sampling.Max(a)
			set.Sampling.SubtractScale(b, c, 1, 2)
		}
	})
}

// TestInterleavedSumsStayInside is TestStaysInside for floats that are multiplied by interleaved weights.
func TestInterleavedSumsStayInside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for _, rows := range []int{1, 3, 8, 15, 16, 17, 32, 48, 75} {
			for blocks := 1; blocks <= 3; blocks++ {
				for _, packing := range []quant.Packing{quant.Q8, quant.Q4} {
					lies, _ := kerneltest.Interleaved(random, packing, rows, 32*blocks)
					p := *lies
					p.Codes = kerneltest.Guarded(t, len(lies.Codes))
					copy(p.Codes, lies.Codes)
					for _, tokens := range []int{1, 2, 5, 8, 9} {
						x, y := kerneltest.GuardedFloats(t, tokens*p.Width), kerneltest.GuardedFloats(t, tokens*rows)
						set.QGEMM.MulInterleaved(mat.Floats{V: y, Stride: rows}, quant.View{Packed: &p, Step: 1, Rows: rows, Cols: p.Width}, mat.Floats{V: x, Stride: p.Width}, tokens, false)
						set.QGEMM.MulInterleaved(mat.Floats{V: y, Stride: rows}, quant.View{Packed: &p, Row: rows / 2, Step: 1, Rows: rows - rows/2, Cols: p.Width}, mat.Floats{V: x, Stride: p.Width}, tokens, true)
						set.QGEMM.MulInterleaved(mat.Floats{V: y, Stride: rows}, quant.View{Packed: &p, Step: 2, Rows: mat.CeilDiv(rows, 2), Cols: p.Width}, mat.Floats{V: x, Stride: p.Width}, tokens, true)
					}
					last := max(0, (rows-1)/quant.InterleavedRows*quant.InterleavedRows)
					set.QGEMM.WidenInterleaved(kerneltest.GuardedFloats(t, set.GEMM.PanelLanes()*p.Width), quant.View{Packed: &p, Row: last, Step: 1, Rows: min(rows-last, set.GEMM.PanelLanes()), Cols: p.Width})
				}
			}
		}
	})
}
