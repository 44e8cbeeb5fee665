package vector_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/vector"
)

// near reports whether got is within some ulps of want.
func near(got, want, ulps float64) bool {
	return got == want || got != got && want != want || math.Abs(got-want) <= ulps*math.Abs(math.Nextafter(want, math.Inf(1))-want)
}

// TestAccurateFunctions compares with those of package math, whose errors are below an ulp.
func TestAccurateFunctions(t *testing.T) {
	for i := -7080; i <= 7090; i++ {
		x := float64(i) * 0.09999
		if got, want := vector.AccurateExp(x), math.Exp(x); !near(got, want, 2) {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	for x := 1e-300; x < 700; x *= 1.05 {
		for _, x := range []float64{x, -x} {
			if got, want := vector.AccurateExpm1(x), math.Expm1(x); !near(got, want, 4) {
				t.Errorf("expm1(%v) is %v, want %v", x, got, want)
			}
		}
	}
	for x, want := range map[float64]float64{math.Inf(1): math.Inf(1), 710: math.Inf(1), math.Inf(-1): 0, -750: 0, 0: 1} {
		if got := vector.AccurateExp(x); got != want {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	for y := 1e-320; y < 1e12; y *= 1.013 {
		if got, want := vector.AccurateLog1p(y), math.Log1p(y); !near(got, want, 4) {
			t.Errorf("log1p(%v) is %v, want %v", y, got, want)
		}
	}
	if got := vector.AccurateLog1p(0); got != 0 {
		t.Errorf("log1p(0) is %v", got)
	}
	if nan := math.NaN(); vector.AccurateExp(nan) == vector.AccurateExp(nan) || vector.AccurateLog1p(nan) == vector.AccurateLog1p(nan) {
		t.Error("the functions of NaN are numbers")
	}
}

// TestSigmoid: every variant has the bits of AccurateSigmoid, for lengths with and without a tail, at the ends of the
// exponential's range, with NaN and infinities, and for numbers of random bits.
func TestSigmoid(t *testing.T) {
	ends := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 1e-45, -1e-45,
		708, 708.0001, 709.78, 709.79, -708, -709.78, -709.79, 710, -710, 88.7, -88.7, 103.9, -103.9, -103.98, -104, 17.3, -17.3, 0.34657, -0.34657, math.MaxFloat32, -math.MaxFloat32}
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(5, 6))
		check := func(x []float32) {
			got := make([]float32, len(x))
			set.Vector.Sigmoid(got, x)
			for i, v := range x {
				want := float32(vector.AccurateSigmoid(float64(v)))
				if math.Float32bits(got[i]) != math.Float32bits(want) && (got[i] == got[i] || want == want) {
					t.Fatalf("%d of %d: sigmoid(%v) is %v, want %v", i, len(x), v, got[i], want)
				}
			}
		}
		for n := range len(ends) {
			check(ends[n:])
			check(ends[:n])
		}
		x := make([]float32, 1<<14)
		for range 40 {
			for i := range x {
				switch i % 3 {
				case 0:
					x[i] = math.Float32frombits(r.Uint32())
				case 1:
					x[i] = float32(r.NormFloat64() * 5)
				default:
					x[i] = float32(r.Float64()*220 - 110)
				}
			}
			check(x)
		}
	})
}
