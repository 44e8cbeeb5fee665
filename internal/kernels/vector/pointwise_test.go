package vector_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
)

// TestPointwise: every variant gives the bits of Go, for all lengths, with NaN, infinities
// and numbers too small to be normal among them.
func TestPointwise(t *testing.T) {
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-41, -3e-42, 0, float32(math.Copysign(0, -1))}
	reference := *kernels.For(isa.Portable())
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(8, 1))
		for n := range 70 {
			x, y, u, v := kerneltest.Random(r, n), kerneltest.Random(r, n), kerneltest.Random(r, n), kerneltest.Random(r, n)
			if n > 0 && n%3 == 0 {
				x[r.IntN(n)], y[r.IntN(n)] = odd[n%len(odd)], odd[n/3%len(odd)]
			}
			for name, run := range map[string]func(s *kernels.Set, x, y []float32){
				"AddRounded": func(s *kernels.Set, x, y []float32) { s.Vector.AddRounded(x, y, 0.7) },
				"Norm":       func(s *kernels.Set, x, y []float32) { s.Vector.Norm(x, x, nil, nil, vector.Affine{Mean: 0.1, By: 0.3}) },
				"Norm weighted": func(s *kernels.Set, x, y []float32) {
					s.Vector.Norm(x, x, y, nil, vector.Affine{Mean: 0.1, By: 0.3, Offset: 1})
				},
				"Norm biased": func(s *kernels.Set, x, y []float32) {
					s.Vector.Norm(x, x, nil, y, vector.Affine{Mean: 0.1, By: 0.3, Offset: 1})
				},
				"Norm both": func(s *kernels.Set, x, y []float32) {
					s.Vector.Norm(x, x, u, y, vector.Affine{Mean: 0.1, By: 0.3, Offset: 1})
				},
				"TurnPairs": func(s *kernels.Set, x, y []float32) { s.Vector.Rotate(x, y, u, v) },
			} {
				a, b, c, d := slices.Clone(x), slices.Clone(y), slices.Clone(x), slices.Clone(y)
				run(set, a, b)
				run(&reference, c, d)
				if !sameNumbers(a, c) || !sameNumbers(b, d) {
					t.Fatalf("%s of %d: %v and %v, in Go %v and %v", name, n, a, b, c, d)
				}
			}
			got, want := make([]byte, 2*n), make([]byte, 2*n)
			set.Vector.NarrowBFloat16(got, x)
			mat.NarrowBFloat16(want, x)
			if !bytes.Equal(got, want) {
				t.Fatalf("%v became %x, want %x", x, got, want)
			}
		}
	})
}

// sameNumbers compares bits; a NaN is like any other.
func sameNumbers(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}
