package tensor

import "slices"

// RandomSource draws uniform numbers in [0, 1). A generator of train/rng is one.
type RandomSource interface {
	Float32() float32
}

// Dropout sets each element to 0 with probability p and multiplies the others by 1/(1-p). It draws
// one number per element, in order. With a nil source (evaluation) or p = 0 it returns x itself.
func (tp *Tape) Dropout(x *Tensor, p float64, source RandomSource) *Tensor {
	if !tp.ready("dropout", x) {
		return tp.void()
	}
	if !(p >= 0 && p <= 1) {
		return tp.fail("dropout: got probability %g for x of shape %v, want 0 <= p <= 1", p, x)
	}
	if source == nil || p == 0 {
		return x
	}
	keep := make([]float32, len(x.data))
	for i := range keep {
		if float64(source.Float32()) >= p {
			keep[i] = 1
		}
	}
	return tp.DropoutMask(x, keep, p)
}

// DropoutMask is Dropout with a given mask: keep holds 1 or 0 for each element.
func (tp *Tape) DropoutMask(x *Tensor, keep []float32, p float64) *Tensor {
	if !tp.ready("dropout", x) {
		return tp.void()
	}
	if len(keep) != len(x.data) || !(p >= 0 && p <= 1) {
		return tp.fail("dropout: got probability %g and a mask of %d for x of shape %v, want 0 <= p <= 1 and one mask value per element", p, len(keep), x)
	}
	by := float32(1)
	if p < 1 {
		by = float32(1 / (1 - p))
	}
	factors := slices.Clone(keep)
	scaleBy(factors, by)
	return tp.Mul(x, tp.Input(factors, x.shape...))
}
