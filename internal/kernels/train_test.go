package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/optimizer"
)

// trainLoops are the loops of elements, which have the bits of the Go variant. Each gets
// five operands of one length and changes the first three.
var trainLoops = map[string]func(s *Set, a, b, c, d, e []float32){
	"AddScaled":  func(s *Set, a, b, _, _, _ []float32) { s.Vector.AddScaled(a, b, 0.3) },
	"Sum":        func(s *Set, a, b, c, _, _ []float32) { s.Vector.Sum(a, b, c) },
	"SumInPlace": func(s *Set, a, b, _, _, _ []float32) { s.Vector.Sum(a, a, b) },
	"ScaleShift": func(s *Set, a, _, _, _, _ []float32) { s.Vector.ScaleShift(a, 1.7, 0.2) },
	"Round":      func(s *Set, a, _, _, _, _ []float32) { s.Vector.RoundBFloat16(a) },
	"SiLUGrad":   func(s *Set, a, b, c, d, e []float32) { s.Grad.SiLUGrad(a, b, c, d, e) },
	"SiLUAlone":  func(s *Set, a, _, c, d, _ []float32) { s.Grad.SiLUGrad(a, nil, c, d, nil) },
	"GELUGrad":   func(s *Set, a, b, c, d, e []float32) { s.Grad.GELUTanhGrad(a, b, c, d, e) },
	"GELUAlone":  func(s *Set, a, _, c, d, _ []float32) { s.Grad.GELUTanhGrad(a, nil, c, d, nil) },
	"Softmax":    func(s *Set, a, b, _, _, _ []float32) { s.Grad.SoftmaxGrad(a, b, 0.1, 0.5) },
	"Normal":     func(s *Set, a, b, c, _, _ []float32) { s.Grad.Normal(a, b, c, 0.1, 3) },
	"NormWeight": func(s *Set, a, b, c, _, _ []float32) { s.Grad.NormWeightGrad(a, b, c, 0.1, 3) },
	"TurnHalves": func(s *Set, a, b, c, d, _ []float32) { s.Grad.TurnHalves(a, b, c, d, -1) },
	"Adam": func(s *Set, a, b, c, d, _ []float32) {
		for i, v := range c {
			c[i] = v * v
		}
		s.Optimizer.Adam(a, b, c, d, optimizer.AdamStep{Shrink: 0.999, Decay: 0.1, Sign: -1, Near: 0.1, Keep: 0.9, Take: 0.1, Size: 0.01, Root: 0.3, Eps: 1e-8})
	},
	"Momentum": func(s *Set, a, b, c, _, _ []float32) {
		s.Optimizer.Momentum(a, b, c, optimizer.MomentumStep{LR: 0.1, Decay: 0.01, Sign: 1, Keep: 0.9, Take: 0.8})
	},
	"Nesterov": func(s *Set, a, b, c, _, _ []float32) {
		s.Optimizer.Momentum(a, b, c, optimizer.MomentumStep{LR: 0.1, Decay: 0.01, Sign: 1, Keep: 0.9, Take: 1, Nesterov: true})
	},
}

func TestTrainLoops(t *testing.T) {
	reference := *For(isa.Portable())
	eachSet(t, func(t *testing.T, set *Set) {
		for name, loop := range trainLoops {
			r := rand.New(rand.NewPCG(1, 1))
			for n := range 140 {
				var got, want [5][]float32
				for i := range got {
					got[i] = random(r, n)
					for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, 300, -300} {
						if n > 0 && r.IntN(8) == 0 {
							got[i][r.IntN(n)] = float32(v)
						}
					}
					want[i] = append([]float32{}, got[i]...)
				}
				loop(set, got[0], got[1], got[2], got[3], got[4])
				loop(&reference, want[0], want[1], want[2], want[3], want[4])
				for i := range got {
					same(t, fmt.Sprintf("%s: n %d, operand %d", name, n, i), got[i], want[i])
				}
			}
		}
	})
}

// same compares bits; a NaN is like any other.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if w := want[i]; math.Float32bits(v) != math.Float32bits(w) && (v == v || w == w) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, v, w)
		}
	}
}

func TestTrainSums(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, n := range []int{0, 1, 7, 8, 33, 100, 20000} {
			a, b, w := random(r, n), random(r, n), random(r, n)
			want := 0.0
			for i := range a {
				want += float64(a[i]) * float64(b[i])
			}
			if got := set.Vector.Dot64(a, b); math.Abs(got-want) > 1e-11*float64(n) {
				t.Errorf("n %d: the dot product is %g, want %g", n, got, want)
			}
			if n == 0 || n > 8192 {
				continue
			}
			for _, centred := range []bool{true, false} {
				got := make([]float32, n)
				set.Grad.NormGrad(got, a, b, w, 0.25, 0.5, centred)
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

func BenchmarkTrain(b *testing.B) {
	set, err := Select("")
	if err != nil {
		b.Fatal(err)
	}
	const n = 1 << 13
	var v [5][]float32
	for name, loop := range trainLoops {
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
