//go:build linux

package gemv_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestPiecesHaveTheBitsOfRows: rows that are read in pieces give the bits of whole rows, for any length of the sum and any
// number of rows and tokens, whatever is prefetched, and nothing past the operands is read or written.
func TestPiecesHaveTheBitsOfRows(t *testing.T) {
	before := fetch.Current()
	defer fetch.Use(before)
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(5, 1))
		for i, n := range []int{1, 31, 32, 33, 64, 511, 512, 513, 544, 1024, 1055, 1537, 2048, 2081, 4100} {
			rows, tokens, pad := 1+(11*i+3)%53, 3+(7*i)%37, 2*(i%3)
			data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*(n+pad)), 0)
			lies := kerneltest.Guarded(t, len(data)-2*pad)
			copy(lies, data)
			x := mat.Pairs{Stride: mat.PairWords(n) + i%2}
			x.V = make([]uint32, tokens*x.Stride)
			for i := range tokens {
				set.Vector.RoundPairs(x.V[i*x.Stride:], kerneltest.Random(r, n))
			}
			w := mat.Weights{Data: lies, Stride: 2 * (n + pad), Format: mat.BFloat16}
			var y [2][]float32
			for pieces := range y {
				pattern := fetch.Pattern{Prefetch: true, Pieces: pieces == 1}
				fetch.UseFor(fetch.PairTokens, pattern)
				y[pieces] = make([]float32, tokens*(rows+1))
				set.GEMV.MulPairsAhead(gemv.PairProduct{Y: mat.Floats{V: y[pieces], Stride: rows + 1}, W: w, X: x, Rows: rows, Tokens: tokens, N: n, Next: data[:len(data)*(i%3)/2]})
			}
			kerneltest.SameBits(t, fmt.Sprintf("%d rows of %d, %d tokens", rows, n, tokens), y[1], y[0])
		}
	})
}

// BenchmarkTokensInPieces is products of several tokens with weights that no cache has, by the patterns of reading.
func BenchmarkTokensInPieces(b *testing.B) {
	before := fetch.Current()
	defer fetch.Use(before)
	data := kerneltest.Uncached(b)
	for _, set := range kerneltest.Variants() {
		if !set.BF16 || set.AMX {
			continue
		}
		for _, n := range []int{2048, 4096, 5632} {
			for _, tokens := range []int{2, 4, 6, 8, 16, 32} {
				for _, p := range fetch.Candidates(fetch.PairTokens) {
					b.Run(fmt.Sprintf("%s/%d/%d/%s", set.Name, n, tokens, p), func(b *testing.B) {
						fetch.UseFor(fetch.PairTokens, p)
						rows, words := (192<<10)/(2*n), mat.SpreadPairs(n)
						rows -= rows % set.GEMV.PairRows(tokens, n)
						x, y := mat.Pairs{V: make([]uint32, tokens*words), Stride: words}, mat.Floats{V: make([]float32, tokens*rows), Stride: rows}
						kerneltest.BesideReads(b, data, func(w []byte) {
							for ; len(w) >= 2*rows*n; w = w[2*rows*n:] {
								var next []byte
								if tokens >= 24 {
									next = w[2*rows*n:][:min(2*rows*n, len(w)-2*rows*n)]
								}
								set.GEMV.MulPairsAhead(gemv.PairProduct{Y: y, W: mat.Weights{Data: w[:2*rows*n], Stride: 2 * n, Format: mat.BFloat16}, X: x, Rows: rows, Tokens: tokens, N: n, Next: next})
							}
						})
					})
				}
			}
		}
	}
}
