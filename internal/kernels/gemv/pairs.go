package gemv

import (
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

// MulPairs is Mul for bfloat16 weights and activations rounded to bfloat16. Lane l of 16 adds the
// products 2l and 2l+1 (mod 32) of a row. The lanes are added in halves. It prefetches the rows of
// w and the following ones.
func (s *Kernels) MulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int) {
	s.MulPairsAhead(PairProduct{Y: y, W: w, X: x, Rows: rows, Tokens: tokens, N: n})
}

// PairProduct holds the operands of [Kernels.MulPairsAhead].
type PairProduct struct {
	Y               mat.Floats // Tokens × Rows
	W               mat.Weights
	X               mat.Pairs
	Rows, Tokens, N int
	Next            []byte // prefetched into the second-level cache, which has the rows of W then
}

// MulPairsAhead is MulPairs, but prefetches Next if that has bytes.
func (s *Kernels) MulPairsAhead(p PairProduct) {
	if p.Rows <= 0 || p.Tokens <= 0 {
		return
	}
	p.Y.Check(p.Tokens, p.Rows)
	p.W.Check(p.Rows, p.N)
	_ = p.X.V[:(p.Tokens-1)*p.X.Stride+mat.PairWords(p.N)]
	s.pairs.mulPairs(p.Y, p.W, p.X, p.Rows, p.Tokens, p.N, p.Next)
}

// PairRows returns the number of rows of n elements that MulPairs multiplies at once by the given
// number of tokens. MulPairs is fastest for multiples of it.
func (s *Kernels) PairRows(tokens, n int) int {
	if inPieces(tokens, n) {
		return pieceRows
	}
	if tokens >= leastInPieces {
		return 12
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

// pieceRows is the number of rows read in pieces together. It is a multiple of the 3 rows that a kernel multiplies at once.
const pieceRows = 24

// tileK is the number of terms in a step of a tile.
const tileK = 32

// pairer is implemented by variants that multiply bfloat16 by bfloat16. The caller has checked
// bounds.
type pairer interface {
	mulPairs(y mat.Floats, w mat.Weights, x mat.Pairs, rows, tokens, n int, next []byte)
	tileOne(y []float32, w mat.Weights, x []uint32, rows, blocks int)
}
