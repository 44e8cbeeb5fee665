package tensor

import (
	"github.com/heftai/heft/internal/backend/cpu"
)

// Softmax normalises exp(x) to sum to 1 over dim. A negative dim counts from the last.
func (tp *Tape) Softmax(x *Tensor, dim int) *Tensor { return tp.softmax("softmax", x, dim, false, nil) }

// LogSoftmax computes the logarithm of Softmax without overflow.
func (tp *Tape) LogSoftmax(x *Tensor, dim int) *Tensor {
	return tp.softmax("log_softmax", x, dim, true, nil)
}

// softmax runs the backend's softmax along dim. after, if not nil, is called with a row of x and
// its result.
func (tp *Tape) softmax(name string, x *Tensor, dim int, log bool, after func(x, y []float32)) *Tensor {
	if !tp.ready(name, x) {
		return tp.void()
	}
	d, ok := x.axis(dim)
	if !ok {
		return tp.fail("%s: x has shape %v: dimension %d is out of range", name, x, dim)
	}
	if before, n, last := x.around(d); last != 1 { // make the dimension the last one
		flat := tp.Transpose(tp.Reshape(x, before, n, last), 1, 2)
		return tp.Reshape(tp.Transpose(tp.softmax(name, flat, 2, log, after), 1, 2), x.shape...)
	}
	n := x.last()
	out := tp.result(x.shape, x)
	if len(out.data) == 0 {
		return tp.record(out, func([]float32) { tp.gradient(x) })
	}
	tp.compute(name, func(b *cpu.Backend) { b.Softmax(matrixOf(out.data, n), matrixOf(x.data, n), log) })
	for r := 0; after != nil && r < len(x.data); r += n {
		after(x.data[r:r+n], out.data[r:r+n])
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		tp.compute(name, func(b *cpu.Backend) {
			b.SoftmaxGrad(matrixOf(g, n), matrixOf(grad, n), matrixOf(out.data, n), log)
		})
	})
}

func scaleBy(row []float32, by float32) {
	for i := range row {
		row[i] *= by
	}
}
