package vector

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// RoundPairs rounds src to bfloat16 and stores two elements in each word.
func (s *Kernels) RoundPairs(dst []uint32, src []float32) {
	if len(src) > 0 {
		s.pairs.narrow(dst[:mat.PairWords(len(src))], src)
	}
}

// pairer is implemented by variants that round activations.
type pairer interface {
	narrow(dst []uint32, src []float32)
}
