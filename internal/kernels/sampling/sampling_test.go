package sampling_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// TestPeakAndBelow: all variants have the bits of the first, at all lengths, wherever a NaN stands.
func TestPeakAndBelow(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	r := rand.New(rand.NewPCG(5, 1))
	reference := kernels.For(isa.Portable())
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for n := range 70 {
			x := kerneltest.Random(r, n)
			if n > 3 {
				x[n/2] = -inf
			}
			if got, want := set.Sampling.Max(x), reference.Sampling.Max(x); got != want {
				t.Fatalf("peak of %d is %g, want %g", n, got, want)
			}
			got, want := make([]float32, n), make([]float32, n)
			set.Sampling.SubtractScale(got, x, 1.25, 0.7)
			reference.Sampling.SubtractScale(want, x, 1.25, 0.7)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("element %d of %d is %g, want %g", i, n, got[i], want[i])
				}
			}
			for i := range x {
				v := x[i]
				x[i] = nan
				if got := set.Sampling.Max(x); got == got {
					t.Fatalf("peak of %d with a NaN at %d is %g", n, i, got)
				}
				if x[i] = inf; set.Sampling.Max(x) != inf {
					t.Fatalf("peak of %d overlooks an infinity at %d", n, i)
				}
				x[i] = v
			}
		}
	})
}
