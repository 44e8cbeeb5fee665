package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestClamp: numbers beyond the limit become the limit, NaN stays, and the slope is 1 up to the limit, as in torch.
func TestClamp(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	nan := float32(math.NaN())
	x := []float32{-3, -1.5, -1, 0, 1.5, 1.75, nan}
	got, slopes, ones := make([]float32, len(x)), make([]float32, len(x)), slices.Repeat([]float32{1}, len(x))
	row := func(v []float32) tensor.Tensor { return tensor.Floats(v, 1, len(v)) }
	b.Gate(row(got), row(x), tensor.Tensor{}, meta.ActClamp, 1.5)
	b.GateGrad(row(slopes), tensor.Tensor{}, row(ones), row(x), tensor.Tensor{}, meta.ActClamp, 1.5)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	if want := []float32{-1.5, -1.5, -1, 0, 1.5, 1.5}; !slices.Equal(got[:6], want) || got[6] == got[6] {
		t.Errorf("got %v, want %v and NaN", got, want)
	}
	if want := []float32{0, 1, 1, 1, 1, 0}; !slices.Equal(slopes[:6], want) {
		t.Errorf("slopes %v, want %v", slopes, want)
	}
}

// TestSoftplus: ln(1 + exp(x)), x itself from torch's threshold of 20 on, with the sigmoid as its slope; NaN stays.
func TestSoftplus(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	x := []float32{-200, -40, -1.5, 0, 1.5, 19, 25, 3e38, float32(math.NaN())}
	got, slopes, ones := make([]float32, len(x)), make([]float32, len(x)), slices.Repeat([]float32{1}, len(x))
	row := func(v []float32) tensor.Tensor { return tensor.Floats(v, 1, len(v)) }
	b.Gate(row(got), row(x), tensor.Tensor{}, meta.ActSoftplus, 0)
	b.GateGrad(row(slopes), tensor.Tensor{}, row(ones), row(x), tensor.Tensor{}, meta.ActSoftplus, 0)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	for i, v := range x[:len(x)-1] {
		want, slope := float32(math.Log1p(math.Exp(float64(v)))), float32(1/(1+math.Exp(-float64(v))))
		if v >= 20 {
			want = v
		}
		if !(math.Abs(float64(got[i]-want)) <= 1e-6*float64(want)) || !(math.Abs(float64(slopes[i]-slope)) <= 1e-6*float64(slope)) {
			t.Errorf("softplus(%v) = %v with a slope of %v, want %v and %v", v, got[i], slopes[i], want, slope)
		}
	}
	if last := got[len(x)-1]; last == last {
		t.Errorf("softplus of NaN is %v", last)
	}
}

// TestRoundedSlopes compares biases of positions with torch's, for slopes of 71 heads: slope[..., None].bfloat16() *
// torch.arange(2048)[None, None, :], which rounds the positions too.
func TestRoundedSlopes(t *testing.T) {
	positions := []int{1, 255, 257, 301, 513, 999, 1537, 2047}
	for _, c := range []struct {
		exponent float64 // the slope is 2 to this
		want     []float32
	}{
		{-0.125, []float32{0.91796875, 234, 235, 276, 470, 916, 1408, 1880}},
		{-0.75, []float32{0.59375, 151, 152, 178, 304, 592, 912, 1216}},
		{-5.25, []float32{0.0262451171875, 6.6875, 6.71875, 7.875, 13.4375, 26.25, 40.25, 53.75}},
		{-0.1875, []float32{0.87890625, 224, 225, 264, 450, 880, 1352, 1800}},
	} {
		op := attentionOp{a: backend.AttentionArgs{Scale: 0.5, Slopes: []float32{float32(math.Exp2(c.exponent))}, RoundedSlopes: true}}
		x := make([]float32, 2048)
		op.bias(x, 0, 0)
		for i, p := range positions {
			if x[p] != 0.5*c.want[i] {
				t.Errorf("slope 2^%v at %d: %v, want half of %v", c.exponent, p, x[p], c.want[i])
			}
		}
	}
}

// TestExp: exp(x), which is its own slope.
func TestExp(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	x := []float32{-40, -1.5, 0, 1.5, 19}
	got, slopes, ones := make([]float32, len(x)), make([]float32, len(x)), slices.Repeat([]float32{1}, len(x))
	row := func(v []float32) tensor.Tensor { return tensor.Floats(v, 1, len(v)) }
	b.Gate(row(got), row(x), tensor.Tensor{}, meta.ActExp, 0)
	b.GateGrad(row(slopes), tensor.Tensor{}, row(ones), row(x), tensor.Tensor{}, meta.ActExp, 0)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		want := math.Exp(float64(v))
		if !(math.Abs(float64(got[i])-want) <= 1e-6*want) || !(math.Abs(float64(slopes[i])-want) <= 1e-6*want) {
			t.Errorf("exp(%v) = %v with a slope of %v, want %v", v, got[i], slopes[i], want)
		}
	}
}
