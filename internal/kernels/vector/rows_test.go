package vector_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/kerneltest"
)

// TestRows holds that every variant has the bits of Go, for numbers of all kinds and tails of all
// lengths, in memory that ends with the operands.
func TestRows(t *testing.T) {
	reference := *kernels.For(isa.Portable())
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(6, 6))
		odd := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-42, 7, -7, 7.5}
		for n := 0; n <= 70; n += 2 {
			x, y, z := kerneltest.Random(r, n), kerneltest.Random(r, n), kerneltest.Random(r, n)
			for i := range x {
				if i%3 == 0 {
					x[i], y[i] = odd[r.IntN(len(odd))], 8*y[i]
				}
			}
			for i, f := range []func(s *kernels.Set, dst, x, y, z []float32){
				func(s *kernels.Set, dst, x, y, z []float32) {
					copy(dst, x)
					s.Vector.RotateInterleaved(dst, y[:n/2], z[:n/2])
				},
				func(s *kernels.Set, dst, x, _, _ []float32) { s.Vector.AtMost(dst, x, 7) },
				func(s *kernels.Set, dst, x, y, _ []float32) { s.Vector.TimesClamped(dst, y, x, 7) },
				func(s *kernels.Set, dst, x, y, _ []float32) { s.Vector.TimesClamped(dst, y, x, float32(math.Inf(1))) },
				func(s *kernels.Set, dst, x, y, _ []float32) { copy(dst, x); s.Vector.Times(dst, y) },
				func(s *kernels.Set, dst, x, _, _ []float32) { s.Vector.ReLU(dst, x) },
			} {
				got, want := make([]float32, n), make([]float32, n)
				f(set, got, x, y, z)
				f(&reference, want, x, y, z)
				for j := range want {
					if math.Float32bits(got[j]) != math.Float32bits(want[j]) && (got[j] == got[j] || want[j] == want[j]) {
						t.Fatalf("operation %d of %d elements: element %d is %g, want %g", i, n, j, got[j], want[j])
					}
				}
			}
		}
	})
}

func BenchmarkRows(b *testing.B) {
	for _, name := range kernels.Names() {
		set, _ := kernels.Select(name)
		const n = 4096
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		for what, f := range map[string]func(){
			"turn interleaved": func() { set.Vector.RotateInterleaved(x, y[:n/2], z[:n/2]) },
			"clamped":          func() { set.Vector.TimesClamped(x, y, z, 7) },
			"relu":             func() { set.Vector.ReLU(x, y) },
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					f()
				}
			})
		}
	}
}
