package gemv

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Small batches multiply bfloat16 weights in place. A word holds two weights, one of which is
// widened by a shift and the other by a mask. That halves the work of widening each, but
// separates even from odd k, so tokens are split in the same way.

// SplitBlock is the number of elements that are split together.
const SplitBlock = 32

// splitter is implemented by variants for such products. The caller has checked bounds.
type splitter interface {
	most() int // the largest group of tokens
	split(dst []float32, step int, src []float32)
	mulSplit(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool)
}

// HasSplit reports whether the variant implements SplitTokens and MulSplit.
func (s *Kernels) HasSplit() bool { return s.splitter != nil }

// SplitGroup returns the size of the next group of tokens: 8 if the variant has enough registers,
// 4, 2 or 1.
func (s *Kernels) SplitGroup(tokens int) int {
	group := s.splitter.most()
	for group > tokens {
		group /= 2
	}
	return group
}

// SplitFloats returns the length in floats of n split elements.
func (s *Kernels) SplitFloats(n int) int { return mat.CeilDiv(n, SplitBlock) * SplitBlock }

// SplitTokens splits a group of tokens. For every 32 k and each token it stores the elements of
// even k, then those of odd k, padded with zeros.
func (s *Kernels) SplitTokens(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	dst = dst[:tokens*s.SplitFloats(n)]
	for t := range tokens {
		s.splitter.split(dst[t*SplitBlock:], tokens*SplitBlock, x.V[t*x.Stride:][:n])
	}
}

// SplitSums returns the number of floats that MulSplit needs for the sums of rows and a group of
// tokens.
func (s *Kernels) SplitSums(rows, tokens int) int { return rows * tokens * s.Lanes }

// SplitProduct holds the operands of [Kernels.MulSplit]: N elements of Rows rows of W, and of
// Tokens tokens that SplitTokens has stored in X, from element K on. Sums keeps the partial sums
// until the Last piece of k, which sets Y.
type SplitProduct struct {
	Y            mat.Floats
	W            mat.Weights
	X, Sums      []float32
	Rows, Tokens int
	N, K         int
	Last         bool
}

// MulSplit adds the products of N elements of each row and token to Y[t][r] = Σ_k W[r][k] ·
// X[t][k], from element K on. Lane l adds the products 2l and 2l+1 (mod twice the lanes) in
// ascending order. The lanes are added in halves. From the first piece of k to the last one they
// are kept in Sums. All pieces except the last are whole blocks. It may prefetch as many rows as
// follow these.
func (s *Kernels) MulSplit(p SplitProduct) {
	y, w, x, sums, rows, tokens, n := p.Y, p.W, p.X, p.Sums, p.Rows, p.Tokens, p.N
	if rows <= 0 || tokens <= 0 || n <= 0 {
		return
	}
	y.Check(tokens, rows)
	w.Check(rows, n)
	x, sums = x[:tokens*s.SplitFloats(n)], sums[:s.SplitSums(rows, tokens)]
	s.splitter.mulSplit(y, w, x, sums, rows, tokens, n, p.K, p.Last)
}

// Deinterleave splits src into the elements at even and at odd positions, in blocks of
// SplitBlock. Blocks begin step elements apart in dst.
func (s *Kernels) Deinterleave(dst []float32, step int, src []float32) {
	s.splitter.split(dst, step, src)
}
