// Package sampling implements the inner loops that choose a token from logits. All variants
// compute the same bits.
package sampling

import (
	"math"

	"github.com/heftai/heft/internal/kernels/isa"
)

// ops is implemented by each variant, with the same bits. Slices have the same length.
type ops interface {
	peak(x []float32) float32
	below(dst, x []float32, top, by float32)
}

// Max returns the largest element of x, −Inf if x is empty, and NaN if an element is NaN.
func (s *Kernels) Max(x []float32) float32 { return s.ops.peak(x) }

// SubtractScale sets dst[i] = (x[i] − top) · by. dst may be x.
func (s *Kernels) SubtractScale(dst, x []float32, top, by float32) {
	s.ops.below(dst, x[:len(dst)], top, by)
}

func (goOps) peak(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v != v {
			return v
		}
		top = max(top, v)
	}
	return top
}

func (goOps) below(dst, x []float32, top, by float32) {
	for i, v := range x {
		dst[i] = float32(v-top) * by
	}
}

// Kernels are the sampling kernels of one variant. They are stateless and safe for concurrent
// use.
type Kernels struct{ ops ops }

// For returns the kernels of v.
func For(v isa.Variant) Kernels { return Kernels{ops: opsOf(v)} }

// goOps is the reference implementation.
type goOps struct{}
