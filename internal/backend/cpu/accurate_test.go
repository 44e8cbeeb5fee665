package cpu

import (
	"math"
	"testing"
)

// near reports whether got is within some ulps of want.
func near(got, want, ulps float64) bool {
	return got == want || got != got && want != want || math.Abs(got-want) <= ulps*math.Abs(math.Nextafter(want, math.Inf(1))-want)
}

// TestAccurateFunctions compares with those of package math, whose errors are below an ulp.
func TestAccurateFunctions(t *testing.T) {
	for i := -7080; i <= 7090; i++ {
		x := float64(i) * 0.09999
		if got, want := accurateExp(x), math.Exp(x); !near(got, want, 2) {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	for x := 1e-300; x < 700; x *= 1.05 {
		for _, x := range []float64{x, -x} {
			if got, want := accurateExpm1(x), math.Expm1(x); !near(got, want, 4) {
				t.Errorf("expm1(%v) is %v, want %v", x, got, want)
			}
		}
	}
	for x, want := range map[float64]float64{math.Inf(1): math.Inf(1), 710: math.Inf(1), math.Inf(-1): 0, -750: 0, 0: 1} {
		if got := accurateExp(x); got != want {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	for y := 1e-320; y < 1e12; y *= 1.013 {
		if got, want := accurateLog1p(y), math.Log1p(y); !near(got, want, 4) {
			t.Errorf("log1p(%v) is %v, want %v", y, got, want)
		}
	}
	if got := accurateLog1p(0); got != 0 {
		t.Errorf("log1p(0) is %v", got)
	}
	if nan := math.NaN(); accurateExp(nan) == accurateExp(nan) || accurateLog1p(nan) == accurateLog1p(nan) {
		t.Error("the functions of NaN are numbers")
	}
}
