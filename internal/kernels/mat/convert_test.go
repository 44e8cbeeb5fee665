package mat_test

import (
	"math"
	"testing"

	"github.com/heftai/heft/internal/kernels/mat"
)

// TestConversionsRoundTrip: every 16-bit value comes back, and halfway cases go to even.
func TestConversionsRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		if f := mat.FromFloat16(uint16(i)); f == f && mat.ToFloat16(f) != uint16(i) {
			t.Fatalf("float16 %#x is %g, which is %#x", i, f, mat.ToFloat16(f))
		}
		if f := mat.FromBFloat16(uint16(i)); f == f && mat.ToBFloat16(f) != uint16(i) {
			t.Fatalf("bfloat16 %#x is %g, which is %#x", i, f, mat.ToBFloat16(f))
		}
	}
	for i := uint16(0); i < 0x7bff; i++ {
		a, b := mat.FromFloat16(i), mat.FromFloat16(i+1)
		middle := (a + b) / 2 // exact
		if want := i + i&1; mat.ToFloat16(middle) != want || mat.ToFloat16(math.Nextafter32(middle, 0)) != i || mat.ToFloat16(math.Nextafter32(middle, b)) != i+1 {
			t.Fatalf("%g between %#x and its neighbour is rounded to %#x", middle, i, mat.ToFloat16(middle))
		}
	}
	for v, want := range map[float32]uint16{65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00, -65520: 0xfc00} {
		if got := mat.ToFloat16(v); got != want {
			t.Errorf("%g is %#x, want %#x", v, got, want)
		}
	}
	nan := float32(math.NaN())
	if f, b := mat.FromFloat16(mat.ToFloat16(nan)), mat.FromBFloat16(mat.ToBFloat16(nan)); f == f || b == b {
		t.Error("NaN is lost")
	}
	if mat.FromBFloat16(mat.ToBFloat16(math.MaxFloat32)) != float32(math.Inf(1)) {
		t.Error("the largest float32 does not round to an infinite bfloat16")
	}
}
