package gemv

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Few tokens meet bfloat16 weights where they lie: a word has two of them, of which one is
// widened by a shift and the other by a mask. That is half the work of widening each, but the
// numbers of even and odd k come apart, so tokens are split in the same way.

// HalvesBlock is the number of elements that are split together.
const HalvesBlock = 32

// halver is what a variant implements for that. Bounds have been checked.
type halver interface {
	most() int // tokens of a group
	split(dst []float32, step int, src []float32)
	mulHalves(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool)
}

// Halves reports whether s has SplitTokens and MulHalves.
func (s *Kernels) Halves() bool { return s.halver != nil }

// HalvesTokens is how many of so many tokens make the next group: 8, where the variant has as many
// registers, 4, 2 or 1.
func (s *Kernels) HalvesTokens(tokens int) int {
	group := s.halver.most()
	for group > tokens {
		group /= 2
	}
	return group
}

// SplitFloats is the length of n split elements.
func (s *Kernels) SplitFloats(n int) int { return mat.CeilDiv(n, HalvesBlock) * HalvesBlock }

// SplitTokens lays out a group of tokens: for each 32 k, of each token, the elements of even k
// and then of odd k, filled up with zeros.
func (s *Kernels) SplitTokens(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	dst = dst[:tokens*s.SplitFloats(n)]
	for t := range tokens {
		s.halver.split(dst[t*HalvesBlock:], tokens*HalvesBlock, x.V[t*x.Stride:][:n])
	}
}

// HalvesSums is what MulHalves needs to keep the sums of rows and a group of tokens.
func (s *Kernels) HalvesSums(rows, tokens int) int { return rows * tokens * s.Lanes }

// MulHalves adds n elements of each row and token to y[t][r] = Σ_k w[r][k] · x[t][k], from where
// bfloat16 weights and a group of tokens have element k. Lane l adds the products 2l and 2l+1 (mod
// twice the lanes) in ascending order; the lanes are added in halves. Between the first and the last
// piece of k they are kept in sums; all pieces but the last are whole blocks. As many rows as there
// are behind these may be fetched meanwhile.
func (s *Kernels) MulHalves(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool) {
	if rows <= 0 || tokens <= 0 || n <= 0 {
		return
	}
	y.Check(tokens, rows)
	w.Check(rows, n)
	x, sums = x[:tokens*s.SplitFloats(n)], sums[:s.HalvesSums(rows, tokens)]
	s.halver.mulHalves(y, w, x, sums, rows, tokens, n, k, last)
}

// Deinterleave sets dst to the elements of even and odd positions of src, apart in blocks of
// HalvesBlock, of which each begins step elements after the one before.
func (s *Kernels) Deinterleave(dst []float32, step int, src []float32) {
	s.halver.split(dst, step, src)
}
