package matmul

import (
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
)

// A Kernel is the kernel that computes a product. It decides the order of summation.
type Kernel uint8

// The kernels.
const (
	Panels       Kernel = iota // float32 panels
	RoundedParts               // operands rounded to bfloat16
	FloatParts                 // float32 operands as sums of three numbers in bfloat16
)

// String returns the kernel's function.
func (k Kernel) String() string {
	switch k {
	case RoundedParts:
		return "gemm.MulParts, 1 part"
	case FloatParts:
		return "gemm.MulParts, 3 parts"
	}
	return "gemm.MulPanels"
}

// minPartsTerms is the length of sums from which it pays to cut operands in parts.
const minPartsTerms = 48

// choices is the table: the first row that a product meets chooses its kernel. The number of terms
// in a sum is all of the shape that counts, so that a result depends on nothing else.
var choices = []struct {
	kernel  Kernel
	rounded bool
	terms   int // at least
	needs   func(*kernels.Set) bool
}{
	{RoundedParts, true, minPartsTerms, func(s *kernels.Set) bool { return s.GEMM.HasParts(gemm.RoundedParts) && !s.SlowPairs }},
	// Six products of parts take half the time of one of floats.
	{FloatParts, false, minPartsTerms, func(s *kernels.Set) bool { return s.GEMM.HasParts(gemm.FloatParts) }},
}

// KernelFor returns the kernel of products whose sums have so many terms.
func KernelFor(s *kernels.Set, rounded bool, terms int) Kernel {
	for i := range choices {
		if c := &choices[i]; c.rounded == rounded && terms >= c.terms && c.needs(s) {
			return c.kernel
		}
	}
	return Panels
}

// Kernel returns the kernel of m's products whose sums have so many terms.
func (m *Multiplier) Kernel(rounded bool, terms int) Kernel { return KernelFor(m.set, rounded, terms) }
