package tensor

import view "github.com/heftai/heft/internal/tensor"

// With ConvOptions.Double, the forward pass of a convolution keeps float64 values next to the
// float32 ones, and so do norms, ReLUs, sums and pools of its result. Rounding to float32 can
// decide differently between close neighbours, and training then takes another course.

// float is the type in which a tensor's values are read.
type float interface{ float32 | float64 }

// widen allocates float64 values for t if any of the operands has them.
func (t *Tensor) widen(ins ...*Tensor) bool {
	for _, in := range ins {
		if in != nil && in.wide != nil && len(t.data) > 0 {
			t.wide = make([]float64, len(t.data))
			return true
		}
	}
	return false
}

// at64 returns element i as float64.
func (t *Tensor) at64(i int) float64 {
	if t.wide != nil {
		return t.wide[i]
	}
	return float64(t.data[i])
}

// set64 sets element i of a tensor that has float64 values.
func (t *Tensor) set64(i int, v float64) { t.wide[i], t.data[i] = v, float32(v) }

// grid views t's numbers as images, those in float64 if t has them.
func (t *Tensor) grid() view.Tensor {
	if t.wide != nil {
		return view.Doubles(t.wide, t.shape...)
	}
	return view.Floats(t.data, t.shape...)
}

// narrow rounds float64 values to the float32 ones, if t has them.
func (t *Tensor) narrow() {
	for i, v := range t.wide {
		t.data[i] = float32(v)
	}
}
