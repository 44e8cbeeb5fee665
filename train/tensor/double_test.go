package tensor

import (
	"math"
	"testing"

	"github.com/heftai/heft/train/rng"
)

// TestDoubleIsTheSameButForRounding compares both ways through everything that stays in
// float64, with odd numbers of channels and taps, a bias and groups.
func TestDoubleIsTheSameButForRounding(t *testing.T) {
	for _, groups := range []int{1, 3} {
		var results [2][]float32
		var grads [2][]float32
		for k, double := range []bool{false, true} {
			g := rng.New(4)
			draw := func(shape ...int) *Parameter {
				x := make([]float32, count(shape))
				g.Normal(x, 0, 1)
				return NewParameter(x, shape...)
			}
			x, w, b := draw(2, 3, 7, 6), draw(9, 3/groups, 3, 3), draw(9)
			scale, shift := draw(9), draw(9)
			tp := NewTape(Options{Threads: 2})
			y := tp.Conv2D(tp.Use(x), tp.Use(w), tp.Use(b), ConvOptions{Padding: 1, Groups: groups, Double: double})
			y = tp.BatchNorm2D(y, tp.Use(scale), tp.Use(shift), NewBatchNorm(9))
			y = tp.MaxPool2D(tp.ReLU(y), 2, 2, 0)
			y = tp.Add(y, y)
			y = tp.Reshape(tp.AdaptiveAvgPool2D(y, 1, 1), 2, 9)
			if (y.wide != nil) != double {
				t.Fatalf("double %v: in float64 %v", double, y.wide != nil)
			}
			results[k] = y.Data()
			if err := tp.Backward(tp.Mean(tp.Mul(y, y)), 1); err != nil {
				t.Fatal(err)
			}
			grads[k] = w.Grad()
		}
		for what, pair := range map[string][2][]float32{"result": results, "gradient": grads} {
			for i, v := range pair[0] {
				if d := math.Abs(float64(v - pair[1][i])); !(d < 1e-4) {
					t.Errorf("%d groups: %s %d is %v, in float64 %v", groups, what, i, v, pair[1][i])
				}
			}
		}
	}
}
