package grad_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/grad"
	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// loops have the bits of the Go variant. Each gets five operands of one length and changes the
// first three.
var loops = kerneltest.Loops{
	"SiLUGrad":   func(s *kernels.Set, a, b, c, d, e []float32) { s.Grad.SiLUGrad(a, b, c, d, e) },
	"SiLUAlone":  func(s *kernels.Set, a, _, c, d, _ []float32) { s.Grad.SiLUGrad(a, nil, c, d, nil) },
	"GELUGrad":   func(s *kernels.Set, a, b, c, d, e []float32) { s.Grad.GELUTanhGrad(a, b, c, d, e) },
	"GELUAlone":  func(s *kernels.Set, a, _, c, d, _ []float32) { s.Grad.GELUTanhGrad(a, nil, c, d, nil) },
	"Softmax":    func(s *kernels.Set, a, b, _, _, _ []float32) { s.Grad.SoftmaxGrad(a, b, 0.1, 0.5) },
	"Normal":     func(s *kernels.Set, a, b, c, _, _ []float32) { s.Grad.Normal(a, b, c, 0.1, 3) },
	"NormWeight": func(s *kernels.Set, a, b, c, _, _ []float32) { s.Grad.NormWeightGrad(a, b, c, 0.1, 3) },
	"RotateHalf": func(s *kernels.Set, a, b, c, d, _ []float32) { s.Grad.Rotate(a, b, c, d, -1) },
}

func TestGradLoops(t *testing.T) { kerneltest.TestLoops(t, loops) }

func BenchmarkGradLoops(b *testing.B) { kerneltest.BenchmarkLoops(b, loops) }

// TestNormGrad compares with the formula, in memory that ends with the operands.
func TestNormGrad(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, n := range []int{1, 7, 8, 33, 100, 8000} {
			a, b, w := kerneltest.Random(r, n), kerneltest.Random(r, n), kerneltest.Random(r, n)
			for _, centred := range []bool{true, false} {
				got := kerneltest.GuardedFloats(t, n)
				set.Grad.NormGrad(got, a, b, w, grad.Norm{Mean: 0.25, By: 0.5, Centred: centred})
				normGradient(t, got, a, b, w, 0.25, 0.5, centred)
			}
		}
	})
}

// normGradient compares the gradient of a row with its formula.
func normGradient(t *testing.T, got, dy, x, w []float32, mean, by float64, centred bool) {
	t.Helper()
	n, level, along := float64(len(x)), 0.0, 0.0
	for i := range x {
		h := float64(dy[i]) * float64(w[i])
		level += h
		along += h * (float64(x[i]) - mean) * by
	}
	if !centred {
		level = 0
	}
	for i := range x {
		h, z := float64(dy[i])*float64(w[i]), (float64(x[i])-mean)*by
		want := by * (h - level/n - z*along/n)
		if d := math.Abs(float64(got[i]) - want); d > 1e-5*(1+math.Abs(want)) {
			t.Fatalf("n %d, centred %v: element %d is %g, want %g", len(x), centred, i, got[i], want)
		}
	}
}
