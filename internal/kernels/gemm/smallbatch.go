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

// smallBatcher is what a variant implements for that. Bounds have been checked.
type smallBatcher interface {
	side(dst []float32, x mat.Floats, tokens, width, n int)
	sumSmallBatch(b SmallBatch)
}

// smallBatchWidths are the numbers of tokens that there are kernels for.
var smallBatchWidths = [...]int{1, 2, 4, 6, 8, 12, SmallBatchTokens}

// HasSmallBatch reports whether the variant has PackSmallBatch and MulSmallBatch.
func (s *Kernels) HasSmallBatch() bool { return s.smallBatches != nil }

// SmallBatchWidth is how many numbers PackSmallBatch lays side by side for so many tokens.
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

// SmallBatch is the operands of [Kernels.MulSmallBatch]: Rows rows of N bfloat16 weights, at least
// SmallBatchRows of them and whole blocks of columns, and up to SmallBatchTokens Tokens that
// PackSmallBatch has packed at X. Next is prefetched meanwhile.
type SmallBatch struct {
	C            mat.Floats // Tokens × Rows
	W            mat.Weights
	X            []float32
	Rows, Tokens int
	N            int
	Next         []byte
}

// MulSmallBatch computes C[t][r] = Σ_k W[r][k] · X[t][k] in ascending order of k, with the bits of
// SumPanels.
func (s *Kernels) MulSmallBatch(b SmallBatch) {
	b.C.Check(b.Tokens, b.Rows)
	b.W.Check(b.Rows, b.N)
	b.X = b.X[:b.N*s.SmallBatchWidth(b.Tokens)]
	s.smallBatches.sumSmallBatch(b)
}
