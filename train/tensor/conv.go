package tensor

import "github.com/heftai/heft/internal/kernels/matmul"

// ConvOptions configures [Tape.Conv2D]. Each value applies to height and width. Zero values mean
// stride 1, no padding, dilation 1 and one group.
type ConvOptions struct {
	Stride, Padding, Dilation, Groups int
	// Double computes the forward pass in float64, which takes several times as long. Batch norms,
	// ReLUs, sums of equal shapes and pools of the result then use float64 too. Close calls in a
	// pool or at a ReLU's zero are then decided correctly, so training follows a reference for
	// longer.
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
// in/groups, kernel height, kernel width], and adds bias [out], which may be nil.
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
	c := &convolution{tp: tp, x: x, w: weight, bias: bias, o: o, images: x.shape[0], in: weight.shape[1], out: weight.shape[0] / o.Groups}
	c.rows = window{x.shape[2], weight.shape[2], o.Stride, o.Padding, o.Dilation}
	c.cols = window{x.shape[3], weight.shape[3], o.Stride, o.Padding, o.Dilation}
	if c.rows.kernel < 1 || c.cols.kernel < 1 || c.rows.places() < 1 || c.cols.places() < 1 {
		return tp.fail("conv2d: x has shape %v, weight %v: the kernel does not fit into the padded input with %+v", x, weight, o)
	}
	c.taps, c.places = c.in*c.rows.kernel*c.cols.kernel, c.rows.places()*c.cols.places()
	return c.forward()
}

// window is a kernel that slides along one dimension.
type window struct{ size, kernel, stride, padding, dilation int }

// places returns the number of output positions.
func (w window) places() int {
	free := w.size + 2*w.padding - w.dilation*(w.kernel-1) - 1
	if free < 0 {
		return 0
	}
	return free/w.stride + 1
}

// at returns the input position that tap k of output position i reads. Positions outside [0, size)
// are padding.
func (w window) at(i, k int) int { return i*w.stride - w.padding + k*w.dilation }

// convolution is one matrix product for each image and group: the weight [out, taps] by the
// unfolded image [taps, places].
type convolution struct {
	tp                            *Tape
	x, w, bias                    *Tensor
	o                             ConvOptions
	rows, cols                    window
	images, in, out, taps, places int // in and out of one group
}

func (c *convolution) forward() *Tensor {
	out := c.tp.result([]int{c.images, c.out * c.o.Groups, c.rows.places(), c.cols.places()}, c.x, c.w, c.bias)
	if c.o.Double {
		out.wide = make([]float64, len(out.data))
		c.tp.parallel(c.images*c.o.Groups, func(u int) { c.forwardDouble(out, u) })
		return c.tp.record(out, c.backward)
	}
	c.tp.parallel(c.images*c.o.Groups, func(u int) {
		image := make([]float32, c.taps*c.places)
		unfold(c, image, c.image(c.x.data, u))
		y := out.data[u*c.out*c.places : (u+1)*c.out*c.places]
		first := u % c.o.Groups * c.out
		if c.bias != nil {
			for i := range c.out {
				fill(y[i*c.places:(i+1)*c.places], c.bias.data[first+i])
			}
		}
		c.tp.mixUnits(dense(y, c.places), dense(c.w.data[first*c.taps:], c.taps), 1, stored(image, c.places), c.taps, c.out, c.places)
	})
	return c.tp.record(out, c.backward)
}

func fill(row []float32, v float32) {
	for i := range row {
		row[i] = v
	}
}

// image returns the channels of one image and group, numbered together.
func (c *convolution) image(x []float32, u int) []float32 {
	n := c.in * c.rows.size * c.cols.size
	return x[u*n : (u+1)*n]
}

func (c *convolution) backward(grad []float32) {
	if g := c.tp.gradient(c.x); g != nil {
		turned := c.turned()
		c.tp.parallel(c.images*c.o.Groups, func(u int) {
			image := make([]float32, c.taps*c.places)
			dy := grad[u*c.out*c.places : (u+1)*c.out*c.places]
			w := dense(turned[u%c.o.Groups*c.out*c.taps:], c.out)
			c.tp.mixUnits(dense(image, c.places), w, 1, stored(dy, c.places), c.out, c.taps, c.places)
			c.fold(c.image(g, u), image)
		})
		c.tp.giveBack(turned)
	}
	if g := c.tp.gradient(c.w); g != nil {
		image := c.tp.borrow(c.taps * c.places)
		for u := range c.images * c.o.Groups { // the images in order, each on all threads
			unfold(c, image, c.image(c.x.data, u))
			at := u % c.o.Groups * c.out * c.taps
			dy := matmul.Rows(grad[u*c.out*c.places:(u+1)*c.out*c.places], c.places)
			c.tp.gemm.Mul(matmul.Product{C: dense(g[at:at+c.out*c.taps], c.taps), A: dy, B: matmul.Columns(image, c.places), Rows: c.out, Cols: c.taps, N: c.places, Add: true})
		}
		c.tp.giveBack(image)
	}
	if g := c.tp.gradient(c.bias); g != nil {
		for i := range c.images * len(g) {
			var sum float64
			for _, v := range grad[i*c.places : (i+1)*c.places] {
				sum += float64(v)
			}
			g[i%len(g)] += float32(sum)
		}
	}
}

// turned returns the transposed weight of each group, [taps, out].
func (c *convolution) turned() []float32 {
	n := c.out * c.taps
	w := c.tp.borrow(n * c.o.Groups)
	c.tp.parallel(c.o.Groups*c.taps, func(u int) {
		from, row := c.w.data[u/c.taps*n+u%c.taps:], w[u*c.out:(u+1)*c.out]
		for i := range row {
			row[i] = from[i*c.taps]
		}
	})
	return w
}

// each calls f for every run along a row of the image: the tap's row of the unfolded
// image, where the run begins in it and in the image (which f bounds), and its length.
func (c *convolution) each(f func(unfolded, at, step, first, n int)) {
	kh, kw, width := c.rows.kernel, c.cols.kernel, c.cols.places()
	for tap := range c.taps {
		channel, ky, kx := tap/(kh*kw), tap/kw%kh, tap%kw
		for i := range c.rows.places() {
			y := c.rows.at(i, ky)
			to := tap*c.places + i*width
			if y < 0 || y >= c.rows.size {
				f(to, 0, 0, 0, 0)
				continue
			}
			first, end := 0, width
			for first < end && c.cols.at(first, kx) < 0 {
				first++
			}
			for end > first && c.cols.at(end-1, kx) >= c.cols.size {
				end--
			}
			f(to, (channel*c.rows.size+y)*c.cols.size+c.cols.at(first, kx), c.cols.stride, first, end-first)
		}
	}
}

// unfold writes the input that each tap reads at each position. Padding is 0.
func unfold[F float](c *convolution, dst, x []F) {
	width := c.cols.places()
	c.each(func(to, at, step, first, n int) {
		row := dst[to : to+width]
		clear(row[:first])
		for i := range n {
			row[first+i] = x[at+i*step]
		}
		clear(row[first+n:])
	})
}

// fold adds each tap's values to the input positions that it read.
func (c *convolution) fold(x, src []float32) {
	c.each(func(from, at, step, first, n int) {
		for i, v := range src[from+first : from+first+n] {
			x[at+i*step] += v
		}
	})
}
