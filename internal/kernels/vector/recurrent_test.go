package vector_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// TestDeltaSteps: every variant has the bits of the sums in the order of the rows.
func TestDeltaSteps(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(3, 1))
		for _, keys := range []int{1, 2, 7, 128} {
			for _, values := range []int{1, 3, 8, 15, 16, 17, 33, 64, 77, 128, 200} {
				state, kq, change := kerneltest.Random(r, keys*values), kerneltest.Random(r, 2*keys), kerneltest.Random(r, values)
				want, seen, out := slices.Clone(state), make([]float32, values), make([]float32, values)
				for i := range keys {
					for j := range values {
						seen[j] += float32(kq[i] * state[i*values+j])
						s := float32(state[i*values+j]*0.7) + float32(kq[i]*change[j])
						out[j] += float32(kq[keys+i] * s)
						want[i*values+j] = s
					}
				}
				name := fmt.Sprintf("%d keys of %d values", keys, values)
				got := kerneltest.Random(r, values)
				if set.Vector.DeltaRead(got, state, kq[:keys]); !slices.Equal(got, seen) {
					t.Errorf("%s: what the state has differs", name)
				}
				if set.Vector.DeltaStep(got, state, kq, change, 0.7); !slices.Equal(got, out) || !slices.Equal(state, want) {
					t.Errorf("%s: the step differs", name)
				}
			}
		}
	})
}
