package vector

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// RoundPairs rounds src to bfloat16, two in a word.
func (s *Kernels) RoundPairs(dst []uint32, src []float32) {
	if len(src) > 0 {
		s.pairs.narrow(dst[:mat.PairWords(len(src))], src)
	}
}

// pairer is what a variant that rounds activations implements.
type pairer interface {
	narrow(dst []uint32, src []float32)
}
