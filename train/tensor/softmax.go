package tensor

import "math"

// Softmax normalises exp(x) to sum to 1 over dim. A negative dim counts from the last.
func (tp *Tape) Softmax(x *Tensor, dim int) *Tensor {
	return tp.softmax("softmax", x, dim, func(row []float32) {
		scaleBy(row, 1/exponentials(tp, row))
	}, softmaxBack)
}

// softmaxBack adds the gradient of a row of Softmax to dx.
func softmaxBack(dx, dy, y []float32) {
	var dot float64
	for i, v := range y {
		dot += float64(v * dy[i])
	}
	for i, v := range y {
		dx[i] += v * (dy[i] - float32(dot))
	}
}

// LogSoftmax computes the logarithm of Softmax without overflow.
func (tp *Tape) LogSoftmax(x *Tensor, dim int) *Tensor {
	return tp.softmax("log_softmax", x, dim, func(row []float32) {
		lse := tp.logSumExp(row)
		for i := range row {
			row[i] -= lse
		}
	}, func(dx, dy, y []float32) {
		var sum float64
		for _, v := range dy {
			sum += float64(v)
		}
		for i, v := range y {
			dx[i] += dy[i] - float32(math.Exp(float64(v))*sum)
		}
	})
}

// softmax runs forward on each row along dim, in place, and backward likewise.
func (tp *Tape) softmax(name string, x *Tensor, dim int, forward func(row []float32), backward func(dx, dy, y []float32)) *Tensor {
	if !tp.ready(name, x) {
		return tp.void()
	}
	d, ok := x.axis(dim)
	if !ok {
		return tp.fail("%s: x has shape %v: dimension %d is out of range", name, x, dim)
	}
	if before, n, after := x.around(d); after != 1 { // bring the dimension to the end
		flat := tp.Transpose(tp.Reshape(x, before, n, after), 1, 2)
		return tp.Reshape(tp.Transpose(tp.softmax(name, flat, 2, forward, backward), 1, 2), x.shape...)
	}
	n := x.last()
	out := tp.result(x.shape, x)
	tp.rows(x.outer(), n, func(lo, hi int) {
		copy(out.data[lo*n:hi*n], x.data[lo*n:])
		for r := lo; r < hi && n > 0; r++ {
			forward(out.data[r*n : (r+1)*n])
		}
	})
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		tp.rows(x.outer(), n, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				s := r * n
				backward(g[s:s+n], grad[s:s+n], out.data[s:s+n])
			}
		})
	})
}

// exponentials replaces a row by exp(x - max) and returns the sum.
func exponentials(tp *Tape, row []float32) float32 {
	return tp.set.Vector.ExpSum(row, tp.set.Vector.ScaleMax(row, 1))
}

// pieces is the number of elements that logSumExp processes at a time, on the stack.
const pieces = 512

// logSumExp returns the logarithm of the sum of exponentials of a row, which it does not change.
func (tp *Tape) logSumExp(row []float32) float32 {
	var buf [pieces]float32
	top := float32(math.Inf(-1))
	for at := 0; at < len(row); at += pieces {
		top = max(top, tp.set.Vector.ScaleMax(buf[:copy(buf[:], row[at:])], 1))
	}
	var sum float64
	for at := 0; at < len(row); at += pieces {
		part := buf[:copy(buf[:], row[at:])]
		sum += float64(tp.set.Vector.ExpSum(part, top))
	}
	return top + float32(math.Log(sum))
}

func scaleBy(row []float32, by float32) {
	for i := range row {
		row[i] *= by
	}
}
