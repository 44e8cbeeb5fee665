package gemv

import (
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

// MulPairs is Mul for bfloat16 weights and activations rounded to bfloat16. Lane l of 16 adds the
// products 2l and 2l+1 (mod 32) of a row. The lanes are added in halves.
func (s *Kernels) MulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.Check(tokens, rows)
	w.Check(rows, n)
	_ = x.V[:(tokens-1)*x.Stride+mat.PairWords(n)]
	s.pairs.mulPairs(y, w, x, rows, tokens, n)
}

// PairRows returns the number of rows of n elements that MulPairs multiplies at once by the given
// number of tokens. MulPairs is fastest for multiples of it.
func (s *Kernels) PairRows(tokens, n int) int {
	if inPieces(tokens, n) {
		return pieceRows
	}
	return 4
}

// inPieces reports whether MulPairs reads rows in pieces: where the fetch plan says so, and where
// the first-level cache cannot hold as many tokens as a kernel multiplies by whole rows.
func inPieces(tokens, n int) bool {
	long := tokens > leastInPieces && 2*n*min(tokens, mostPairTokens) > cachedTokens
	return long || tokens >= leastInPieces && fetch.InPieces(fetch.PairTokens)
}

// MulTile computes y[r] for rows of bfloat16 weights in place and one token, a row of Pairs, over
// blocks of 32 k. Its sums have the bits of gemm's Tile.
func (s *Kernels) MulTile(y []float32, w mat.Weights, x []uint32, rows, blocks int) {
	if rows <= 0 || blocks <= 0 {
		return
	}
	w.Check(rows, blocks*tileK)
	s.pairs.tileOne(y[:rows], w, x[:blocks*tileK/2], rows, blocks)
}

// leastInPieces is the smallest number of tokens that are multiplied by rows in pieces.
const leastInPieces = 4

// mostPairTokens is the largest number of tokens that a kernel multiplies at once.
const mostPairTokens = 8

// cachedTokens is the room in bytes that the first-level cache has for tokens besides rows.
const cachedTokens = 32 << 10

// pieceRows is the number of rows read in pieces together. It is a multiple of the 3 or 4 rows
// that a kernel multiplies at once.
const pieceRows = 12

// tileK is the number of terms in a step of a tile.
const tileK = 32

// pairer is implemented by variants that multiply bfloat16 by bfloat16. The caller has checked
// bounds.
type pairer interface {
	mulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int)
	tileOne(y []float32, w mat.Weights, x []uint32, rows, blocks int)
}
