package tensor

import "slices"

// Source gives uniform numbers in [0, 1). A generator of train/rng is one.
type Source interface {
	Float32() float32
}

// Dropout sets each element to 0 with probability p and multiplies the others by
// 1/(1-p). It draws one number for each element, in order. A nil source, as in
// evaluation, and p = 0 return x itself.
func (tp *Tape) Dropout(x *Tensor, p float64, source Source) *Tensor {
	if !tp.ready("dropout", x) {
		return tp.void()
	}
	if !(p >= 0 && p <= 1) {
		return tp.fail("dropout: the probability %g for x of shape %v", p, x)
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

// DropoutMask is Dropout with a choice that is made: keep is 1 or 0 for each element.
func (tp *Tape) DropoutMask(x *Tensor, keep []float32, p float64) *Tensor {
	if !tp.ready("dropout", x) {
		return tp.void()
	}
	if len(keep) != len(x.data) || !(p >= 0 && p <= 1) {
		return tp.fail("dropout: the probability %g with a mask of %d for x of shape %v", p, len(keep), x)
	}
	by := float32(1)
	if p < 1 {
		by = float32(1 / (1 - p))
	}
	factors := slices.Clone(keep)
	scaleBy(factors, by)
	return tp.Mul(x, tp.Input(factors, x.shape...))
}
