package cpu

import (
	"math"
	"testing"
)

// TestExpRest compares the curved part of xIELU with its definition in float64, on both sides of 0 and of
// the limit, and far out.
func TestExpRest(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, limit := range []float32{0, 1e-6, 0.25, -0.5} {
		for _, x := range []float32{-inf, -3e38, -100, -1, -0.3, -0.2, -1e-3, -1e-7, 0, 1e-30, 2, inf, nan} {
			want := 0.0
			if !(x > 0) {
				want = math.Exp(math.Min(float64(x), -float64(limit))) - 1 - float64(x)
			}
			got := float64(expRest(x, limit))
			if near := math.Abs(got-want) <= 1e-6*math.Abs(want)+1e-12; math.IsNaN(want) != math.IsNaN(got) || !near && !math.IsNaN(want) && !math.IsInf(want, 1) {
				t.Errorf("expRest(%g, %g) = %g, want %g", x, limit, got, want)
			}
			if math.IsInf(want, 1) && !math.IsInf(got, 1) {
				t.Errorf("expRest(%g, %g) = %g, want an infinity", x, limit, got)
			}
		}
	}
}

// TestExpRestSlope: the slope is exp(x) - 1 up to the limit, -1 from there to 0, where the exponential is constant, and 0 above.
func TestExpRestSlope(t *testing.T) {
	for _, c := range []struct{ x, limit, want float32 }{
		{-1, 1e-6, float32(math.Expm1(-1))}, {-1e-3, 1e-6, float32(math.Expm1(-1e-3))}, {-1e-7, 1e-6, -1}, {0, 1e-6, -1}, {1e-7, 1e-6, 0}, {3, 1e-6, 0},
		{-0.25, 0.25, float32(math.Expm1(-0.25))}, {-0.2, 0.25, -1},
	} {
		if got := expRestSlope(c.x, c.limit); !(math.Abs(float64(got-c.want)) <= 1e-6*math.Abs(float64(c.want))) {
			t.Errorf("expRestSlope(%g, %g) = %g, want %g", c.x, c.limit, got, c.want)
		}
	}
}
