//go:build linux

package gemv_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestOneTokenInLongRows: a token alone has the bits that it has among others, and nothing
// past the weights is read, for rows that are fetched ahead in part or whole and for any number
// of them beside the streams.
func TestOneTokenInLongRows(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(8, 1))
		for i, n := range []int{31, 32, 63, 64, 65, 512, 513, 541, 1023, 1024, 1087, 1600} {
			rows, pad := 1+(7*i+5)%29, 2*(i%3)
			for f := range mat.Formats {
				data, _ := kerneltest.Store(f, kerneltest.Random(r, rows*(n+pad)), 0)
				lies := kerneltest.Guarded(t, len(data)-pad*f.Size())
				copy(lies, data)
				w, x := mat.Weights{Data: lies, Stride: (n + pad) * f.Size(), Format: f}, mat.Floats{V: kerneltest.Random(r, 2*n), Stride: n}
				both, alone := make([]float32, 2*rows), make([]float32, rows)
				set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: both, Stride: rows}, W: w, X: x, Rows: rows, Tokens: 2, N: n})
				set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: alone, Stride: rows}, W: w, X: x, Rows: rows, Tokens: 1, N: n})
				kerneltest.SameBits(t, fmt.Sprintf("format %d, %d rows of %d", f, rows, n), alone, both[:rows])
				if f == mat.BFloat16 && set.GEMV.HasSplit() {
					both, alone = kerneltest.BySplit(set, w, x, rows, 2, n, n), kerneltest.BySplit(set, w, x, rows, 1, n, n)
					kerneltest.SameBits(t, fmt.Sprintf("halves, %d rows of %d", rows, n), alone, both[:rows])
				}
			}
		}
	})
}

// BenchmarkOneToken is products of one token.
func BenchmarkOneToken(b *testing.B) {
	const unit = 128 << 10
	data := kerneltest.Uncached(b)
	one := func(b *testing.B, each int, mul func(w []byte, rows int)) {
		rows := max(unit/each, 1)
		if rows > 8 {
			rows &^= 7
		}
		kerneltest.BesideReads(b, data, func(w []byte) {
			for ; len(w) >= rows*each; w = w[rows*each:] {
				mul(w[:rows*each], rows)
			}
		})
	}
	for _, set := range kerneltest.Variants() {
		if set.Name != "avx512" && set.Name != "avx2" {
			continue
		}
		for _, n := range []int{512, 2048, 5632} {
			x, y := make([]float32, n+gemv.SplitBlock), make([]float32, unit)
			for f, name := range []string{mat.BFloat16: "bfloat16", mat.Float16: "float16", mat.Float32: "float32"} {
				each := n * mat.Format(f).Size()
				b.Run(fmt.Sprintf("%s/%s/%d", set.Name, name, n), func(b *testing.B) {
					one(b, each, func(w []byte, rows int) {
						set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows}, W: mat.Weights{Data: w, Stride: each, Format: mat.Format(f)}, X: mat.Floats{V: x, Stride: n}, Rows: rows, Tokens: 1, N: n})
					})
				})
			}
			if set.GEMV.HasSplit() {
				sums := make([]float32, set.GEMV.SplitSums(unit/(2*n)+8, 1))
				b.Run(fmt.Sprintf("%s/halves/%d", set.Name, n), func(b *testing.B) {
					one(b, 2*n, func(w []byte, rows int) {
						set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: y, Stride: rows}, W: mat.Weights{Data: w, Stride: 2 * n, Format: mat.BFloat16}, X: x, Sums: sums, Rows: rows, Tokens: 1, N: n, K: 0, Last: true})
					})
				})
			}
		}
	}
}

// BenchmarkFewTokens is products of tiles of so many tokens, of the variants that have such tiles.
func BenchmarkFewTokens(b *testing.B) {
	data := kerneltest.Uncached(b)
	for _, set := range kerneltest.Variants() {
		if !set.AMX {
			continue
		}
		for _, n := range []int{1024, 2048, 5632} {
			for _, tokens := range []int{16, 32, 64, 128} {
				b.Run(fmt.Sprintf("%s/%d/%d", set.Name, n, tokens), func(b *testing.B) {
					rows, words := max((256<<10)/(2*n)/gemm.CoupleTokens, 1)*gemm.CoupleTokens, gemm.PanelWords(n)
					x, c := make([]uint32, tokens/gemm.PanelTokens*words), make([]float32, rows*gemm.CoupleTokens)
					kerneltest.BesideReads(b, data, func(w []byte) {
						for ; len(w) >= 2*rows*n; w = w[2*rows*n:] {
							f := gemm.Fetch{Next: w[2*rows*n:]}
							for t := 0; t < tokens; t += gemm.CoupleTokens {
								f.Quarters = max(4/mat.CeilDiv(tokens, gemm.CoupleTokens), 1)
								set.GEMM.TileRows(gemm.RowTiles{C: c, W: mat.Weights{Data: w, Stride: 2 * n, Format: mat.BFloat16}, X: x[t/gemm.PanelTokens*words:], XStride: words, Panels: min(2, (tokens-t)/gemm.PanelTokens), Rows: rows, Blocks: n / gemm.BlockK, Fetch: f})
								f.Done += f.Quarters
							}
						}
					})
				})
			}
		}
	}
}

// BenchmarkSplitTokens is products of split tokens with weights from memory, in units and pieces as
// splitDot of the CPU backend has them.
func BenchmarkSplitTokens(b *testing.B) {
	data := kerneltest.Uncached(b)
	for _, set := range kerneltest.Variants() {
		if !set.GEMV.HasSplit() {
			continue
		}
		for _, n := range []int{1024, 2048, 5632} {
			for _, tokens := range []int{4, 8} {
				tokens = set.GEMV.SplitGroup(tokens)
				b.Run(fmt.Sprintf("%s/%d/%d", set.Name, n, tokens), func(b *testing.B) {
					rows := (192 << 10) / (2 * n) / 12 * 12
					step := mat.CeilDiv(n/gemv.SplitBlock, mat.CeilDiv(n/gemv.SplitBlock, (24<<10)/(4*tokens*gemv.SplitBlock))) * gemv.SplitBlock
					x, y, sums := make([]float32, tokens*n), make([]float32, rows*tokens), make([]float32, set.GEMV.SplitSums(rows, tokens))
					kerneltest.BesideReads(b, data, func(w []byte) {
						for ; len(w) >= 4*rows*n; w = w[2*rows*n:] {
							for k := 0; k < n; k += step {
								part := min(step, n-k)
								set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: y, Stride: rows}, W: mat.Weights{Data: w[2*k:], Stride: 2 * n, Format: mat.BFloat16}, X: x[k*tokens:], Sums: sums, Rows: rows, Tokens: tokens, N: part, K: k, Last: k+part == n})
							}
						}
					})
				})
			}
		}
	}
}
