package tensor

import "math"

// RMSNorm computes x / √(mean(x²) + eps) · weight over the last dimension. weight is [width].
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
// and bias are [width]. bias may be nil.
func (tp *Tape) LayerNorm(x, weight, bias *Tensor, eps float64) *Tensor {
	if !tp.ready("layernorm", x, weight) || bias != nil && !tp.ready("layernorm", bias) {
		return tp.void()
	}
	if x.dims() < 1 || !weight.is(x.last()) || bias != nil && !bias.is(x.last()) {
		return tp.fail("layernorm: x has shape %v, weight %v, bias %v, want [… width], [width], [width]", x, weight, bias)
	}
	return tp.normalize(x, weight, bias, eps, true)
}

// normalize keeps the mean and the reciprocal deviation of each row.
func (tp *Tape) normalize(x, weight, bias *Tensor, eps float64, center bool) *Tensor {
	rows, n := x.outer(), x.last()
	out := tp.result(x.shape, x, weight, bias)
	mean, scale := make([]float32, rows), make([]float32, rows)
	tp.rows(rows, n, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row, y := x.data[r*n:(r+1)*n], out.data[r*n:(r+1)*n]
			mean[r], scale[r] = moments(row, eps, center)
			for i, v := range row {
				y[i] = (v - mean[r]) * scale[r] * weight.data[i]
			}
			if bias != nil {
				addTo(y, bias.data)
			}
		}
	})
	return tp.record(out, func(grad []float32) {
		if g := tp.gradient(x); g != nil {
			tp.rows(rows, n, func(lo, hi int) {
				for r := lo; r < hi; r++ {
					s := r * n
					normBack(g[s:s+n], grad[s:s+n], x.data[s:s+n], weight.data, mean[r], scale[r], center)
				}
			})
		}
		if g := tp.gradient(weight); g != nil {
			tp.columns(g, rows, func(sum []float32, r, lo int) {
				dy, row := grad[r*n+lo:], x.data[r*n+lo:]
				for i := range sum {
					sum[i] += dy[i] * (row[i] - mean[r]) * scale[r]
				}
			})
		}
		tp.sumRows(tp.gradient(bias), grad)
	})
}

// columns adds to dst the sums over rows, in order, that f computes. Threads share the pieces of
// dst.
func (tp *Tape) columns(dst []float32, rows int, f func(sum []float32, r, lo int)) {
	const width = 128
	tp.parallel((len(dst)+width-1)/width, func(u int) {
		var buf [width]float32
		lo := u * width
		part := dst[lo:min(lo+width, len(dst))]
		sum := buf[:len(part)]
		for r := range rows {
			f(sum, r, lo)
		}
		addTo(part, sum)
	})
}

// moments returns the mean (0 if the row is not centred) and 1/√(variance + eps).
func moments(row []float32, eps float64, center bool) (mean, scale float32) {
	var m, squares float64
	if center {
		for _, v := range row {
			m += float64(v)
		}
		m /= float64(len(row))
	}
	for _, v := range row {
		d := float64(v) - m
		squares += d * d
	}
	return float32(m), float32(1 / math.Sqrt(squares/float64(len(row))+eps))
}

// normBack adds the gradient of one row: with h = dy·weight and z the normalised row,
// scale·(h - mean(h) - z·mean(h·z)), mean(h) only where the row was centred.
func normBack(dx, dy, x, weight []float32, mean, scale float32, center bool) {
	var along, level float64
	for i, v := range x {
		h := dy[i] * weight[i]
		along += float64(h * (v - mean))
		level += float64(h)
	}
	n := float64(len(x))
	slope := float32(along / n * float64(scale) * float64(scale))
	offset := float32(0)
	if center {
		offset = float32(level / n)
	}
	for i, v := range x {
		dx[i] += scale * (dy[i]*weight[i] - offset - (v-mean)*slope)
	}
}
