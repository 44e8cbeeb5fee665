package matmul

import (
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
)

// A Kernel identifies the kernel that computes a product. It determines the order of summation.
type Kernel uint8

// The kernels.
const (
	Panels       Kernel = iota // float32 panels
	RoundedParts               // operands rounded to bfloat16
	FloatParts                 // float32 operands split into three bfloat16 parts
)

// String returns the name of the kernel's function.
func (k Kernel) String() string {
	switch k {
	case RoundedParts:
		return "gemm.MulParts, 1 part"
	case FloatParts:
		return "gemm.MulParts, 3 parts"
	}
	return "gemm.MulPanels"
}

// minPartsTerms is the number of terms from which splitting operands into parts is faster.
const minPartsTerms = 48

// choices lists the kernels in order of preference: the first row whose conditions a product
// meets chooses its kernel. Of the shape, only the number of terms in a sum counts, so that a
// result depends on nothing else.
var choices = []struct {
	kernel  Kernel
	rounded bool
	terms   int // the minimum
	needs   func(*kernels.Set) bool
}{
	{RoundedParts, true, minPartsTerms, func(s *kernels.Set) bool { return s.GEMM.HasParts(gemm.RoundedParts) && !s.SlowPairs }},
	// Six products of parts take half the time of one float32 product.
	{FloatParts, false, minPartsTerms, func(s *kernels.Set) bool { return s.GEMM.HasParts(gemm.FloatParts) }},
}

// KernelFor returns the kernel for products whose sums have the given number of terms.
func KernelFor(s *kernels.Set, rounded bool, terms int) Kernel {
	for i := range choices {
		if c := &choices[i]; c.rounded == rounded && terms >= c.terms && c.needs(s) {
			return c.kernel
		}
	}
	return Panels
}

// Kernel returns the kernel of m for products whose sums have the given number of terms.
func (m *Multiplier) Kernel(rounded bool, terms int) Kernel { return KernelFor(m.set, rounded, terms) }
