package tensor

import view "github.com/heftai/heft/internal/tensor"

// With ConvOptions.Double, the forward pass of a convolution keeps float64 values in addition to
// the float32 ones, and so do norms, ReLUs, sums and pools of its result. Rounding to float32 can
// decide near ties differently, and training then diverges from a reference.

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

// grid views t's values as images, in float64 if t has such values.
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
