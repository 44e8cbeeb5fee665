package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Short prompts multiply bfloat16 weights in place: blocks of weights are transposed in registers
// and multiplied there. Packing panels, as SumPanels needs, is only worthwhile if many tokens
// share them.

// The block sizes of MulSmallBatch.
const (
	SmallBatchTokens  = 16 // the maximum
	SmallBatchRows    = 16
	SmallBatchColumns = 32
)

// smallBatcher is implemented by variants for such products. The caller has checked bounds.
type smallBatcher interface {
	side(dst []float32, x mat.Floats, tokens, width, n int)
	sumSmallBatch(b SmallBatch)
}

// smallBatchWidths lists the numbers of tokens for which there are kernels.
var smallBatchWidths = [...]int{1, 2, 4, 6, 8, 12, SmallBatchTokens}

// HasSmallBatch reports whether the variant implements PackSmallBatch and MulSmallBatch.
func (s *Kernels) HasSmallBatch() bool { return s.smallBatches != nil }

// SmallBatchWidth returns the number of elements that PackSmallBatch stores side by side for the
// given number of tokens.
func (s *Kernels) SmallBatchWidth(tokens int) int {
	for _, w := range smallBatchWidths {
		if w >= tokens {
			return w
		}
	}
	return SmallBatchTokens
}

// PackSmallBatch stores tokens side by side: dst[k·width+t] = x[t][k], and 0 from tokens up to
// the width.
func (s *Kernels) PackSmallBatch(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	width := s.SmallBatchWidth(tokens)
	s.smallBatches.side(dst[:n*width], x, tokens, width, n)
}

// SmallBatch holds the operands of [Kernels.MulSmallBatch]: Rows rows of N bfloat16 weights and
// up to SmallBatchTokens Tokens, which PackSmallBatch has packed in X. There are at least
// SmallBatchRows rows and whole blocks of columns. Next is prefetched meanwhile.
type SmallBatch struct {
	C            mat.Floats // Tokens × Rows
	W            mat.Weights
	X            []float32
	Rows, Tokens int
	N            int
	Next         []byte
}

// MulSmallBatch computes C[t][r] = Σ_k W[r][k] · X[t][k] in ascending order of k, with the bits
// of SumPanels.
func (s *Kernels) MulSmallBatch(b SmallBatch) {
	b.C.Check(b.Tokens, b.Rows)
	b.W.Check(b.Rows, b.N)
	b.X = b.X[:b.N*s.SmallBatchWidth(b.Tokens)]
	s.smallBatches.sumSmallBatch(b)
}
