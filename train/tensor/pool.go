package tensor

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
)

// MaxPool2D computes the maximum of each position of a square kernel over x [batch, channels,
// height, width]. Padding is never the maximum. Of equal elements the first in row order gets the
// gradient. NaN counts as the maximum. stride 0 means kernel. The result is [batch, channels, ·, ·],
// where a length of n becomes ⌊(n + 2·padding - kernel)/stride⌋ + 1. Padding of more than half of the
// kernel is an error.
func (tp *Tape) MaxPool2D(x *Tensor, kernel, stride, padding int) *Tensor {
	return tp.slidingPool("maxpool2d", x, kernel, stride, padding, true)
}

// AvgPool2D computes the mean at each position of a square kernel over x [batch, channels,
// height, width]. Padding counts as zeros and is included in the divisor. stride 0 means kernel.
// Shapes and errors are as in [Tape.MaxPool2D].
func (tp *Tape) AvgPool2D(x *Tensor, kernel, stride, padding int) *Tensor {
	return tp.slidingPool("avgpool2d", x, kernel, stride, padding, false)
}

// AdaptiveAvgPool2D computes the means of height×width nearly equal parts of x [batch, channels, ·,
// ·]. Parts overlap if the size is not divisible. The result is [batch, channels, height, width].
func (tp *Tape) AdaptiveAvgPool2D(x *Tensor, height, width int) *Tensor {
	if !tp.ready("adaptive_avgpool2d", x) {
		return tp.void()
	}
	if x.dims() != 4 || height < 1 || width < 1 || x.shape[2] < 1 || x.shape[3] < 1 {
		return tp.fail("adaptive_avgpool2d: x has shape %v, want [batch channels height width], the result is [%d %d]", x, height, width)
	}
	return tp.pool("adaptive_avgpool2d", x, backend.Pool2DArgs{Rows: backend.Window{Size: x.shape[2], Parts: height}, Cols: backend.Window{Size: x.shape[3], Parts: width}})
}

// slidingPool is a pool with a sliding kernel.
func (tp *Tape) slidingPool(name string, x *Tensor, kernel, stride, padding int, most bool) *Tensor {
	if !tp.ready(name, x) {
		return tp.void()
	}
	if stride == 0 {
		stride = kernel
	}
	if x.dims() != 4 || kernel < 1 || stride < 1 || padding < 0 || 2*padding > kernel {
		return tp.fail("%s: x has shape %v: invalid kernel %d, stride %d or padding %d", name, x, kernel, stride, padding)
	}
	slide := func(size int) backend.Window {
		return backend.Window{Size: size, Kernel: kernel, Stride: stride, Padding: padding, Dilation: 1}
	}
	a := backend.Pool2DArgs{Rows: slide(x.shape[2]), Cols: slide(x.shape[3]), Max: most}
	if a.Rows.Places() < 1 || a.Cols.Places() < 1 {
		return tp.fail("%s: x has shape %v, smaller than the kernel %d", name, x, kernel)
	}
	return tp.pool(name, x, a)
}

// pool runs the backend's pool.
func (tp *Tape) pool(name string, x *Tensor, a backend.Pool2DArgs) *Tensor {
	out := tp.blank([]int{x.shape[0], x.shape[1], a.Rows.Places(), a.Cols.Places()}, x)
	switch {
	case len(out.data) == 0:
		return tp.recordZeros(out, x)
	case len(x.data) == 0:
		return tp.fail("%s: x has shape %v, want at least one element in each plane", name, x)
	}
	var from []int32
	if a.Max {
		from = make([]int32, len(out.data))
	}
	out.widen(x)
	tp.compute(name, func(b *cpu.Backend) { b.Pool2D(out.grid(), from, x.grid(), a) })
	out.narrow()
	return tp.record(out, func(grad []float32) {
		dx := tp.gradient(x)
		tp.compute(name, func(b *cpu.Backend) { b.Pool2DGrad(gridOf(dx, x.shape), gridOf(grad, out.shape), from, a) })
	})
}
