package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Few tokens of a prompt meet bfloat16 weights where they lie: blocks of them are turned in
// registers, and multiplied there. What SumPanels gains from panels is for tokens that share them.

// Sizes of the blocks of SumFew.
const (
	FewTokens  = 16 // at most
	FewRows    = 16
	FewColumns = 32
)

// fewer is what a variant implements for that. Bounds have been checked.
type fewer interface {
	side(dst []float32, x mat.Floats, tokens, width, n int)
	sumFew(c mat.Floats, w mat.Weights, x []float32, rows, tokens, n int, next []byte)
}

// fewWidths are the numbers of tokens that there are kernels for.
var fewWidths = [...]int{1, 2, 4, 6, 8, 12, FewTokens}

// Few reports whether s has PackFew and SumFew.
func (s *Kernels) Few() bool { return s.fewer != nil }

// FewWidth is how many numbers PackFew lays side by side for so many tokens.
func (s *Kernels) FewWidth(tokens int) int {
	for _, w := range fewWidths {
		if w >= tokens {
			return w
		}
	}
	return FewTokens
}

// PackFew lays tokens side by side: dst[k·width+t] = x[t][k], and zeros up to the width.
func (s *Kernels) PackFew(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	width := s.FewWidth(tokens)
	s.fewer.side(dst[:n*width], x, tokens, width, n)
}

// SumFew computes c[t][r] = Σ_k w[r][k] · x[t][k] in ascending order of k, with the bits of
// SumPanels, for rows, n bfloat16 columns and up to FewTokens tokens that PackFew has packed: at
// least FewRows rows, and whole blocks of columns. The processor is told to fetch next meanwhile.
func (s *Kernels) SumFew(c mat.Floats, w mat.Weights, x []float32, rows, tokens, n int, next []byte) {
	c.Check(tokens, rows)
	w.Check(rows, n)
	s.fewer.sumFew(c, w, x[:n*s.FewWidth(tokens)], rows, tokens, n, next)
}
