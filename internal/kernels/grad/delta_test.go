package grad_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// TestDeltaGrad compares sums with those in float64, and elements with the bits of the formula, in
// memory that ends with the operands.
func TestDeltaGrad(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(5, 1))
		guarded := func(n int) []float32 {
			v := kerneltest.GuardedFloats(t, n)
			copy(v, kerneltest.Random(r, n))
			return v
		}
		for _, keys := range []int{1, 2, 7, 64} {
			for _, values := range []int{1, 3, 8, 15, 16, 17, 33, 64, 77, 128, 200} {
				state, d, k, v := guarded(keys*values), guarded(keys*values), guarded(keys), guarded(3*values)
				before, dkq := slices.Clone(d), kerneltest.GuardedFloats(t, 2*keys)
				got := set.Grad.DeltaGrad(dkq, state, d, k, v, 0.7)
				name := fmt.Sprintf("%d keys of %d values", keys, values)
				dy, u, dr, total := v[:values], v[values:2*values], v[2*values:], 0.0
				for i := range keys {
					var read, wrote, had float64
					for j := range values {
						s, g := state[i*values+j], before[i*values+j]
						read += float64(s) * float64(dy[j])
						wrote += float64(g) * float64(u[j])
						had += float64(s) * float64(dr[j])
						total += float64(s) * float64(g)
						if want := float32(g+float32(k[i]*dr[j])) * 0.7; d[i*values+j] != want {
							t.Fatalf("%s: gradient of the state at %d, %d is %g, want %g", name, i, j, d[i*values+j], want)
						}
					}
					size := math.Sqrt(float64(values))
					kerneltest.Near(t, name+": key", dkq[i], wrote+0.7*had, size)
					kerneltest.Near(t, name+": query", dkq[keys+i], 0.7*read, size)
				}
				if !(math.Abs(got-total) <= 1e-5*math.Sqrt(float64(keys*values))) {
					t.Fatalf("%s: sum is %g, want %g", name, got, total)
				}
			}
		}
	})
}

func BenchmarkDeltaGrad(b *testing.B) {
	set, err := kernels.Select("")
	if err != nil {
		b.Fatal(err)
	}
	const n = 128
	r := rand.New(rand.NewPCG(5, 1))
	dkq, state, d, k, v := make([]float32, 2*n), kerneltest.Random(r, n*n), make([]float32, n*n), kerneltest.Random(r, n), kerneltest.Random(r, 3*n)
	for b.Loop() {
		set.Grad.DeltaGrad(dkq, state, d, k, v, 0.9)
	}
}
