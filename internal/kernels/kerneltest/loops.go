package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
)

// Loops maps names to elementwise loops. Each loop gets five operands of the same length and
// changes the first three.
type Loops map[string]func(s *kernels.Set, a, b, c, d, e []float32)

// TestLoops runs loops in every variant and compares the results bit for bit with the Go variant.
// Operands end where memory ends and include numbers that are not finite.
func TestLoops(t *testing.T, loops Loops) {
	reference := kernels.For(isa.Portable())
	Each(t, func(t *testing.T, set *kernels.Set) {
		for name, loop := range loops {
			r := rand.New(rand.NewPCG(1, 1))
			for n := range 140 {
				var got, want [5][]float32
				for i := range got {
					got[i] = GuardedFloats(t, max(n, 1))[:n]
					copy(got[i], Random(r, n))
					for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, 300, -300} {
						if n > 0 && r.IntN(8) == 0 {
							got[i][r.IntN(n)] = float32(v)
						}
					}
					want[i] = append([]float32{}, got[i]...)
				}
				loop(set, got[0], got[1], got[2], got[3], got[4])
				loop(reference, want[0], want[1], want[2], want[3], want[4])
				for i := range got {
					Same(t, fmt.Sprintf("%s: n %d, operand %d", name, n, i), got[i], want[i])
				}
			}
		}
	})
}

// BenchmarkLoops times loops of 8192 elements in the best variant.
func BenchmarkLoops(b *testing.B, loops Loops) {
	set, err := kernels.Select("")
	if err != nil {
		b.Fatal(err)
	}
	const n = 1 << 13
	var v [5][]float32
	for name, loop := range loops {
		b.Run(name, func(b *testing.B) {
			for i := range v {
				v[i] = make([]float32, n)
			}
			for b.Loop() {
				loop(set, v[0], v[1], v[2], v[3], v[4])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/elem")
		})
	}
}
