package tensor

import "slices"

// Sum returns the sum of all elements, a scalar.
func (tp *Tape) Sum(x *Tensor) *Tensor { return tp.total("sum", x, 1) }

// Mean returns the mean of all elements, a scalar. It is NaN for an empty tensor.
func (tp *Tape) Mean(x *Tensor) *Tensor { return tp.total("mean", x, float64(x.Len())) }

func (tp *Tape) total(name string, x *Tensor, by float64) *Tensor {
	if !tp.ready(name, x) {
		return tp.void()
	}
	out := tp.result(nil, x)
	var sum float64
	for _, v := range x.data {
		sum += float64(v)
	}
	out.data[0] = float32(sum / by)
	return tp.record(out, func(grad []float32) {
		v := float32(float64(grad[0]) / by)
		g := tp.gradient(x)
		for i := range g {
			g[i] += v
		}
	})
}

// SumDim sums over dimension dim and removes it. A negative dim counts from the last.
func (tp *Tape) SumDim(x *Tensor, dim int) *Tensor { return tp.along("sum", x, dim, false) }

// MeanDim averages over dimension dim and removes it. A negative dim counts from the last.
func (tp *Tape) MeanDim(x *Tensor, dim int) *Tensor { return tp.along("mean", x, dim, true) }

func (tp *Tape) along(name string, x *Tensor, dim int, mean bool) *Tensor {
	if !tp.ready(name, x) {
		return tp.void()
	}
	d, ok := x.axis(dim)
	if !ok {
		return tp.fail("%s: x has shape %v: dimension %d is out of range", name, x, dim)
	}
	before, n, after := x.around(d)
	by := float32(1)
	if mean {
		by = float32(n)
	}
	out := tp.result(slices.Delete(slices.Clone(x.shape), d, d+1), x)
	for i := range before {
		row := out.data[i*after : (i+1)*after]
		for j := range n {
			addTo(row, x.data[(i*n+j)*after:(i*n+j+1)*after])
		}
		for k := range row {
			row[k] /= by
		}
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for r := range before * n {
			row := grad[r/n*after : (r/n+1)*after]
			for k, v := range row {
				g[r*after+k] += v / by
			}
		}
	})
}
