package gemv

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Small batches multiply bfloat16 weights in place: a word has two of them, of which one is
// widened by a shift and the other by a mask. That is half the work of widening each, but it
// separates even from odd k, so tokens are split in the same way.

// SplitBlock is the number of elements that are split together.
const SplitBlock = 32

// splitter is implemented by variants for that. The caller has checked bounds.
type splitter interface {
	most() int // tokens of a group
	split(dst []float32, step int, src []float32)
	mulSplit(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool)
}

// HasSplit reports whether the variant has SplitTokens and MulSplit.
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

// SplitFloats is the length of n split elements.
func (s *Kernels) SplitFloats(n int) int { return mat.CeilDiv(n, SplitBlock) * SplitBlock }

// SplitTokens lays out a group of tokens: for each 32 k, of each token, the elements of even k
// and then of odd k, filled up with zeros.
func (s *Kernels) SplitTokens(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	dst = dst[:tokens*s.SplitFloats(n)]
	for t := range tokens {
		s.splitter.split(dst[t*SplitBlock:], tokens*SplitBlock, x.V[t*x.Stride:][:n])
	}
}

// SplitSums is the number of floats that MulSplit needs to keep the sums of rows and a group of
// tokens.
func (s *Kernels) SplitSums(rows, tokens int) int { return rows * tokens * s.Lanes }

// SplitProduct is the operands of [Kernels.MulSplit]: N elements of Rows rows of W and of Tokens
// tokens that SplitTokens laid out at X, from element K on. Sums keeps the partial sums until the
// Last piece of k, which sets Y.
type SplitProduct struct {
	Y            mat.Floats
	W            mat.Weights
	X, Sums      []float32
	Rows, Tokens int
	N, K         int
	Last         bool
}

// MulSplit adds n elements of each row and token to y[t][r] = Σ_k w[r][k] · x[t][k], from where
// bfloat16 weights and a group of tokens have element k. Lane l adds the products 2l and 2l+1 (mod
// twice the lanes) in ascending order; the lanes are added in halves. Between the first and the
// last piece of k they are kept in sums; all pieces but the last are whole blocks. It may prefetch
// as many rows as follow these.
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

// Deinterleave sets dst to the elements of even and odd positions of src, apart in blocks of
// SplitBlock, of which each begins step elements after the one before.
func (s *Kernels) Deinterleave(dst []float32, step int, src []float32) {
	s.splitter.split(dst, step, src)
}
