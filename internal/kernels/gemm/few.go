package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Short prompts multiply bfloat16 weights in place: blocks of weights are transposed in registers and
// multiplied there. Packing panels, as SumPanels does, pays only if many tokens share them.

// Sizes of the blocks of MulSmallBatch.
const (
	SmallBatchTokens  = 16 // at most
	SmallBatchRows    = 16
	SmallBatchColumns = 32
)

// fewer is what a variant implements for that. Bounds have been checked.
type smallBatcher interface {
	side(dst []float32, x mat.Floats, tokens, width, n int)
	sumFew(c mat.Floats, w mat.Weights, x []float32, rows, tokens, n int, next []byte)
}

// fewWidths are the numbers of tokens that there are kernels for.
var smallBatchWidths = [...]int{1, 2, 4, 6, 8, 12, SmallBatchTokens}

// Few reports whether s has PackSmallBatch and MulSmallBatch.
func (s *Kernels) HasSmallBatch() bool { return s.smallBatches != nil }

// FewWidth is how many numbers PackSmallBatch lays side by side for so many tokens.
func (s *Kernels) SmallBatchWidth(tokens int) int {
	for _, w := range smallBatchWidths {
		if w >= tokens {
			return w
		}
	}
	return SmallBatchTokens
}

// PackSmallBatch lays tokens side by side: dst[k·width+t] = x[t][k], and zeros up to the width.
func (s *Kernels) PackSmallBatch(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	width := s.SmallBatchWidth(tokens)
	s.smallBatches.side(dst[:n*width], x, tokens, width, n)
}

// MulSmallBatch computes c[t][r] = Σ_k w[r][k] · x[t][k] in ascending order of k, with the bits of
// SumPanels, for rows, n bfloat16 columns and up to SmallBatchTokens tokens that PackSmallBatch has packed: at
// least SmallBatchRows rows, and whole blocks of columns. The processor is told to fetch next meanwhile.
func (s *Kernels) MulSmallBatch(c mat.Floats, w mat.Weights, x []float32, rows, tokens, n int, next []byte) {
	c.Check(tokens, rows)
	w.Check(rows, n)
	s.smallBatches.sumFew(c, w, x[:n*s.SmallBatchWidth(tokens)], rows, tokens, n, next)
}
