package tensor

import (
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/meta"
)

// RMSNorm computes x / √(mean(x²) + eps) · weight over the last dimension (Zhang and
// Sennrich, 2019). weight is [width], and the result has the shape of x.
func (tp *Tape) RMSNorm(x, weight *Tensor, eps float64) *Tensor {
	if !tp.ready("rmsnorm", x, weight) {
		return tp.void()
	}
	if x.dims() < 1 || !weight.is(x.last()) {
		return tp.fail("rmsnorm: x has shape %v, weight %v, want [… width] and [width]", x, weight)
	}
	return tp.normalize(x, weight, nil, eps, false)
}

// LayerNorm computes (x - mean) / √(variance + eps) · weight + bias over the last dimension. weight
// and bias are [width]. bias may be nil. The variance is that of the elements themselves, divided by width
// and not by width - 1. The result has the shape of x.
func (tp *Tape) LayerNorm(x, weight, bias *Tensor, eps float64) *Tensor {
	if !tp.ready("layernorm", x, weight) || bias != nil && !tp.ready("layernorm", bias) {
		return tp.void()
	}
	if x.dims() < 1 || !weight.is(x.last()) || bias != nil && !bias.is(x.last()) {
		return tp.fail("layernorm: x has shape %v, weight %v, bias %v, want [… width], [width], [width]", x, weight, bias)
	}
	return tp.normalize(x, weight, bias, eps, true)
}

// normalize runs the backend's norm.
func (tp *Tape) normalize(x, weight, bias *Tensor, eps float64, center bool) *Tensor {
	n, name := x.last(), "rmsnorm"
	if center {
		name = "layernorm"
	}
	spec := meta.NormSpec{Dim: n, Eps: float32(eps), Layer: center}
	out := tp.blank(x.shape, x, weight, bias)
	if len(out.data) == 0 {
		return tp.record(out, func([]float32) {})
	}
	tp.compute(name, func(b *cpu.Backend) {
		b.Norm(matrixOf(out.data, n), matrixOf(x.data, n), vectorOf(weight.data), vectorOf(dataOf(bias)), spec)
	})
	return tp.record(out, func(grad []float32) {
		dx, dweight, dbias := tp.gradient(x), tp.gradient(weight), tp.gradient(bias)
		tp.compute(name, func(b *cpu.Backend) {
			b.NormGrad(matrixOf(dx, n), vectorOf(dweight), vectorOf(dbias), matrixOf(grad, n), matrixOf(x.data, n), vectorOf(weight.data), spec)
		})
	})
}
