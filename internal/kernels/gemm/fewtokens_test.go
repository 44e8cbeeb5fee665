package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// fewTokens is y of one panel of tokens, computed by TileFew.
func fewTokens(set *kernels.Set, data []byte, x []float32, rows, tokens, n int) []float32 {
	size, blocks := gemm.PanelWords(n), mat.CeilDiv(n, gemm.BlockK)
	panel, packs := make([]uint32, size), make([]uint32, 2*size)
	set.GEMM.PackTokens(panel, mat.Floats{V: x, Stride: n}, tokens, n)
	y := make([]float32, tokens*rows)
	for r := 0; r < rows; r += 2 * gemm.PackRows {
		for i := range 2 {
			at := min(r+i*gemm.PackRows, rows)
			set.GEMM.PackWeights(packs[i*size:], mat.Weights{Data: data[at*2*n:], Stride: 2 * n, Format: mat.BFloat16}, min(gemm.PackRows, rows-at), n)
			set.GEMM.TransposePack(packs[i*size:], blocks)
			if at+gemm.PackRows <= rows && n%gemm.BlockK == 0 { // the same pack
				set.GEMM.TransposeRows(packs[i*size:], mat.Weights{Data: data[at*2*n:], Stride: 2 * n, Format: mat.BFloat16}, blocks)
			}
		}
		set.GEMM.TileFew(gemm.FewTiles{Y: mat.Floats{V: y[r:], Stride: rows}, W: packs, WStride: size, X: panel, Blocks: blocks, Rows: min(2*gemm.PackRows, rows-r), Tokens: tokens, Next: data[2*r*n:]})
	}
	return y
}

// TestFewTokensHaveTheBitsOfMany: products with few tokens have the bits of products with many, for all numbers of tokens.
// Processors with AMX take both from tiles, whose sums are rounded otherwise.
func TestFewTokensHaveTheBitsOfMany(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(3, 11))
		for tokens := 1; tokens <= gemm.PanelTokens; tokens++ {
			for _, s := range [][2]int{{1, 1}, {16, 32}, {17, 33}, {32, 64}, {50, 31}, {70, 200}, {33, 2100}} {
				rows, n := s[0], s[1]
				values := kerneltest.Random(r, rows*n)
				if tokens%3 == 0 {
					values[r.IntN(len(values))] = float32(math.Inf(1))
					values[r.IntN(len(values))] = float32(math.NaN())
				}
				data, _ := kerneltest.Store(mat.BFloat16, values, 3)
				x := kerneltest.Random(r, tokens*n)
				want := kerneltest.Tiled(set, data, x, nil, rows, tokens, n, 64)
				for i, got := range fewTokens(set, data, x, rows, tokens, n) {
					if math.Float32bits(got) != math.Float32bits(want[i]) {
						t.Fatalf("%d rows, %d tokens, n %d: element %d is %g (%#x), want %g (%#x)", rows, tokens, n, i, got, math.Float32bits(got), want[i], math.Float32bits(want[i]))
					}
				}
			}
		}
	})
}
