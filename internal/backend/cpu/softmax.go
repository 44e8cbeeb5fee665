package cpu

import (
	"math"

	"github.com/heftai/heft/internal/tensor"
)

// Softmax reads a row as often as its logarithm requires.
func (b *Backend) Softmax(dst, x tensor.Tensor, log bool) {
	if b.failed.Load() {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	in, ok1 := b.floats("softmax", "operand", x, rows, cols)
	out, ok2 := b.floats("softmax", "result", dst, rows, cols)
	if !ok1 || !ok2 {
		return
	}
	b.each(rows, 8*cols, func(_ *worker, r int) {
		y := row(out, r, cols)
		copy(y, row(in, r, cols))
		if log {
			lse := b.logSumExp(y)
			for i := range y {
				y[i] -= lse
			}
			return
		}
		by := 1 / b.set.Vector.ExpSum(y, b.set.Vector.ScaleMax(y, 1))
		for i := range y {
			y[i] *= by
		}
	})
}

// logSumExp returns the logarithm of the sum of the exponentials of a row, which it does not
// change.
func (b *Backend) logSumExp(row []float32) float32 {
	const pieces = 512 // elements at a time, on the stack
	var buf [pieces]float32
	top := float32(math.Inf(-1))
	for at := 0; at < len(row); at += pieces {
		top = max(top, b.set.Vector.ScaleMax(buf[:copy(buf[:], row[at:])], 1))
	}
	var sum float64
	for at := 0; at < len(row); at += pieces {
		part := buf[:copy(buf[:], row[at:])]
		sum += float64(b.set.Vector.ExpSum(part, top))
	}
	return top + float32(math.Log(sum))
}

// SoftmaxGrad sums over a row in float64.
func (b *Backend) SoftmaxGrad(dx, dy, y tensor.Tensor, log bool) {
	if b.failed.Load() {
		return
	}
	rows, cols := dy.Rows(), dy.Cols()
	grad, ok1 := b.floats("softmax gradient", "result's gradient", dy, rows, cols)
	result, ok2 := b.floats("softmax gradient", "result", y, rows, cols)
	into, ok3 := b.floats("softmax gradient", "gradient", dx, rows, cols)
	if !ok1 || !ok2 || !ok3 {
		return
	}
	b.each(rows, 4*cols, func(_ *worker, r int) {
		dx, dy, y := row(into, r, cols), row(grad, r, cols), row(result, r, cols)
		sum := 0.0
		if log {
			for _, v := range dy {
				sum += float64(v)
			}
			for i, v := range y {
				dx[i] += dy[i] - float32(math.Exp(float64(v))*sum)
			}
			return
		}
		for i, v := range y {
			sum += float64(v * dy[i])
		}
		for i, v := range y {
			dx[i] += v * (dy[i] - float32(sum))
		}
	})
}
