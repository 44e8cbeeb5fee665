package vector_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// loops have the bits of the Go variant. Each gets five operands of one length and changes the
// first three.
var loops = kerneltest.Loops{
	"AddScaled":  func(s *kernels.Set, a, b, _, _, _ []float32) { s.Vector.AddScaled(a, b, 0.3) },
	"Sum":        func(s *kernels.Set, a, b, c, _, _ []float32) { s.Vector.Sum(a, b, c) },
	"SumInPlace": func(s *kernels.Set, a, b, _, _, _ []float32) { s.Vector.Sum(a, a, b) },
	"ScaleShift": func(s *kernels.Set, a, _, _, _, _ []float32) { s.Vector.ScaleShift(a, 1.7, 0.2) },
	"MulAdd":     func(s *kernels.Set, a, b, c, _, _ []float32) { s.Vector.MulAdd(a, b, c) },
	"Round":      func(s *kernels.Set, a, _, _, _, _ []float32) { s.Vector.RoundBFloat16(a) },
}

func TestVectorLoops(t *testing.T) { kerneltest.TestLoops(t, loops) }

func BenchmarkVectorLoops(b *testing.B) { kerneltest.BenchmarkLoops(b, loops) }

func TestDot64(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, n := range []int{0, 1, 7, 8, 33, 100, 20000} {
			a, b := kerneltest.Random(r, n), kerneltest.Random(r, n)
			want := 0.0
			for i := range a {
				want += float64(a[i]) * float64(b[i])
			}
			if got := set.Vector.Dot64(a, b); !(math.Abs(got-want) <= 1e-11*float64(n)) {
				t.Errorf("n %d: the dot product is %g, want %g", n, got, want)
			}
		}
	})
}
