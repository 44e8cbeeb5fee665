package tensor

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	view "github.com/heftai/heft/internal/tensor"
)

// ConvOptions configures [Tape.Conv2D]. Each value applies to height and width. Zero values mean
// stride 1, no padding, dilation 1 and one group.
type ConvOptions struct {
	Stride, Padding, Dilation, Groups int
	// Double computes the forward pass in float64, which takes several times as long. Batch
	// norms, ReLUs, sums of equal shapes and pools of the result then use float64 too. Near ties
	// in a pool or at a ReLU's zero are then decided correctly, so training follows a reference
	// for longer.
	Double bool
}

func (o ConvOptions) defaults() ConvOptions {
	for _, v := range []*int{&o.Stride, &o.Dilation, &o.Groups} {
		if *v == 0 {
			*v = 1
		}
	}
	return o
}

// Conv2D computes the cross-correlation of x [batch, in, height, width] with weight [out,
// in/groups, kernel height, kernel width], and adds bias [out], which may be nil. The result is
// [batch, out, ·, ·], where a length of n becomes ⌊(n + 2·padding - dilation·(kernel-1) - 1)/stride⌋ + 1.
// It is an error if that is less than 1, or if Groups does not divide in and out.
func (tp *Tape) Conv2D(x, weight, bias *Tensor, o ConvOptions) *Tensor {
	if !tp.ready("conv2d", x, weight) || bias != nil && !tp.ready("conv2d", bias) {
		return tp.void()
	}
	if tp.autocast != Float32 {
		return tp.lowered(func(in []*Tensor) *Tensor { return tp.Conv2D(in[0], in[1], in[2], o) }, x, weight, bias)
	}
	o = o.defaults()
	if o.Stride < 1 || o.Padding < 0 || o.Dilation < 1 || o.Groups < 1 {
		return tp.fail("conv2d: x has shape %v, weight %v: invalid options %+v", x, weight, o)
	}
	if x.dims() != 4 || weight.dims() != 4 || weight.shape[1]*o.Groups != x.shape[1] || weight.shape[0]%o.Groups != 0 ||
		bias != nil && !bias.is(weight.shape[0]) {
		return tp.fail("conv2d: x has shape %v, weight %v, bias %v, want [batch in height width], [out in/%d kh kw], [out]",
			x, weight, bias, o.Groups)
	}
	slide := func(size, kernel int) backend.Window {
		return backend.Window{Size: size, Kernel: kernel, Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation}
	}
	a := backend.Conv2DArgs{Rows: slide(x.shape[2], weight.shape[2]), Cols: slide(x.shape[3], weight.shape[3]), Groups: o.Groups}
	if a.Rows.Kernel < 1 || a.Cols.Kernel < 1 || a.Rows.Places() < 1 || a.Cols.Places() < 1 {
		return tp.fail("conv2d: x has shape %v, weight %v: the kernel does not fit into the padded input with %+v", x, weight, o)
	}
	return tp.convolve(x, weight, bias, a, o.Double)
}

// convolve is the backend's convolution.
func (tp *Tape) convolve(x, weight, bias *Tensor, a backend.Conv2DArgs, double bool) *Tensor {
	const name = "conv2d"
	shape := []int{x.shape[0], weight.shape[0], a.Rows.Places(), a.Cols.Places()}
	if len(x.data) == 0 && bias != nil && x.shape[0] > 0 { // empty sums
		return tp.Add(tp.Input(make([]float32, count(shape)), shape...), tp.Reshape(bias, -1, 1, 1))
	}
	out := tp.blank(shape, x, weight, bias)
	if len(x.data) == 0 || len(out.data) == 0 {
		return tp.recordZeros(out, x, weight, bias)
	}
	from, to := gridOf(x.data, x.shape), gridOf(out.data, out.shape)
	if double {
		out.wide = make([]float64, len(out.data))
		from, to = x.grid(), out.grid()
	}
	tp.compute(name, func(b *cpu.Backend) {
		b.Conv2D(to, from, gridOf(weight.data, weight.shape), vectorOf(dataOf(bias)), a)
	})
	out.narrow()
	return tp.record(out, func(grad []float32) {
		dx, dw, dbias := tp.gradient(x), tp.gradient(weight), tp.gradient(bias)
		tp.compute(name, func(b *cpu.Backend) {
			b.Conv2DGrad(gridOf(dx, x.shape), gridOf(dw, weight.shape), vectorOf(dbias), gridOf(grad, out.shape), gridOf(x.data, x.shape),
				gridOf(weight.data, weight.shape), a)
		})
	})
}

// gridOf views v as images, or returns the absent tensor for nil.
func gridOf(v []float32, shape []int) view.Tensor {
	if v == nil {
		return view.Tensor{}
	}
	return view.Floats(v, shape...)
}
