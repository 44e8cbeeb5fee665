package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Images = (*Backend)(nil)

// A convolution is a matrix product for each image and group: the weight [out, taps] times the
// unfolded image [taps, places].
const (
	tapRows = 384 // rows of the result computed at a time
	tapCols = 64  // columns computed at a time, as wide as the kernel's tile
	tapSums = 32  // terms of a partial sum
)

// convolution is one call.
type convolution struct {
	rows, cols     backend.Window
	groups, images int
	in, out        int // channels of a group
	taps, places   int
	w              []float32
}

// convolution checks what the forward and the backward operation have in common.
func (b *Backend) convolution(op string, x, dst, weight tensor.Tensor, a backend.Conv2DArgs) (*convolution, bool) {
	if b.failed.Load() {
		return nil, false
	}
	c := &convolution{rows: a.Rows, cols: a.Cols, groups: a.Groups, images: x.Rows()}
	for _, w := range []backend.Window{a.Rows, a.Cols} {
		if w.Size < 1 || w.Kernel < 1 || w.Stride < 1 || w.Padding < 0 || w.Dilation < 1 || w.Parts != 0 || w.Places() < 1 {
			b.fail("%s: invalid window %+v", op, w)
			return nil, false
		}
	}
	plane := a.Rows.Size * a.Cols.Size
	c.places = a.Rows.Places() * a.Cols.Places()
	if a.Groups < 1 || weight.Rank != 4 || weight.Dims[0]%a.Groups != 0 || weight.Dims[2] != a.Rows.Kernel || weight.Dims[3] != a.Cols.Kernel ||
		x.Cols() != weight.Dims[1]*a.Groups*plane || dst.Cols() != weight.Dims[0]*c.places || dst.Rows() != c.images {
		b.fail("%s: images %v, weight %v and result %v do not fit with %+v", op, x.Shape(), weight.Shape(), dst.Shape(), a)
		return nil, false
	}
	c.in, c.out = weight.Dims[1], weight.Dims[0]/a.Groups
	c.taps = c.in * a.Rows.Kernel * a.Cols.Kernel
	w, ok := b.floats(op, "weight", weight, weight.Dims[0], c.taps)
	if !ok || w.Stride != c.taps {
		b.fail("%s: weight has rows of %d elements in %d", op, c.taps, weight.RowStride())
		return nil, false
	}
	c.w = w.V
	return c, true
}

// channels returns unit u of images stored in rows: the n elements of one image's group.
func (c *convolution) channels(m mat.Floats, u, n int) []float32 {
	return m.V[u/c.groups*m.Stride+u%c.groups*n:][:n]
}

// weights returns the weights of unit u's group.
func (c *convolution) weights(w []float32, u int) []float32 {
	n := c.out * c.taps
	return w[u%c.groups*n:][:n]
}

// size returns the number of elements of the images in a unit.
func (c *convolution) size() int { return c.in * c.rows.Size * c.cols.Size }

// Conv2D computes the images concurrently. It adds sums of few terms, so that rounding rarely
// changes the result of pools and ReLUs that follow.
func (b *Backend) Conv2D(dst, x, weight, bias tensor.Tensor, a backend.Conv2DArgs) {
	const op = "conv2d"
	c, ok := b.convolution(op, x, dst, weight, a)
	if !ok {
		return
	}
	shift, ok := b.vector(op, "bias", bias, slotBias, weight.Dims[0])
	if !ok {
		return
	}
	if dst.DType == meta.Float64 {
		b.conv2dDouble(c, dst, x, shift)
		return
	}
	out, ok1 := b.floats(op, "result", dst, c.images, dst.Cols())
	in, ok2 := b.floats(op, "images", x, c.images, x.Cols())
	unfolded := c.taps * c.places
	if !ok1 || !ok2 || !b.reserve(unfolded+mixScratch) {
		return
	}
	b.run(taskFunc(func(wk *worker, u int) {
		image, y := wk.scratch.v[:unfolded], c.channels(out, u, c.out*c.places)
		unfold(c, image, c.channels(in, u, c.size()))
		clear(y)
		if shift != nil {
			for i := range y {
				y[i] = shift[u%c.groups*c.out+i/c.places]
			}
		}
		b.mix(y, c.weights(c.w, u), image, c.out, c.taps, c.places, wk.scratch.v[unfolded:])
	}), c.images*c.groups, c.images*c.groups*c.out*unfolded)
}

// mixScratch is the length of the scratch memory of mix.
const mixScratch = (tapRows + tapSums) * tapCols

// mix adds the product of p [rows, n] and v [n, cols] to y, in partial sums of tapSums terms, on
// the caller's thread.
func (b *Backend) mix(y, p, v []float32, rows, n, cols int, memory []float32) {
	for r := 0; r < rows; r += tapRows {
		high := min(tapRows, rows-r)
		for c := 0; c < cols; c += tapCols {
			wide := min(tapCols, cols-c)
			sum, panel := memory[:high*wide], memory[tapRows*tapCols:]
			for j := 0; j < n; j += tapSums {
				terms := min(tapSums, n-j)
				clear(sum)
				tile, step := v[j*cols+c:], cols
				if high > 24 { // read often: strides that are powers of two map to few cache lines
					for i := range terms {
						copy(panel[i*wide:(i+1)*wide], tile[i*cols:])
					}
					tile, step = panel, wide
				}
				b.set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: sum, Stride: wide}, P: mat.Floats{V: p[r*n+j:], Stride: n}, Step: 1,
					V: mat.Weights{Data: asm.FloatBytes(tile), Stride: 4 * step, Format: mat.Float32}, Keys: terms, Tokens: high, Cols: wide})
				for i := range high {
					axpy(y[(r+i)*cols+c:][:wide], sum[i*wide:(i+1)*wide], 1)
				}
			}
		}
	}
}

// Conv2DGrad computes the weight's gradient image by image, and the images' gradients
// concurrently.
func (b *Backend) Conv2DGrad(dx, dweight, dbias, dy, x, weight tensor.Tensor, a backend.Conv2DArgs) {
	const op = "conv2d gradient"
	c, ok := b.convolution(op, x, dy, weight, a)
	if !ok {
		return
	}
	grad, ok1 := b.floats(op, "result", dy, c.images, dy.Cols())
	in, ok2 := b.floats(op, "images", x, c.images, x.Cols())
	into, ok3 := b.optional(op, "gradient of images", dx, c.images, x.Cols())
	dw, ok4 := b.optional(op, "gradient of weight", dweight, weight.Dims[0], c.taps)
	shift, stride, ok5 := b.gradient(op, "bias", dbias, weight.Dims[0])
	unfolded := c.taps * c.places
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !b.reserve(unfolded+mixScratch) {
		return
	}
	if into.V != nil {
		b.conv2dInputs(c, into, grad)
	}
	if dw.V != nil {
		b.conv2dWeights(c, dw.V, grad, in)
	}
	if shift != nil {
		b.each(weight.Dims[0], c.images*c.places, func(_ *worker, o int) {
			for i := range c.images {
				var sum float64
				for _, v := range grad.V[i*grad.Stride+o*c.places:][:c.places] {
					sum += float64(v)
				}
				shift[o*stride] += float32(sum)
			}
		})
	}
}

// conv2dInputs adds the gradient of the images.
func (b *Backend) conv2dInputs(c *convolution, into, grad mat.Floats) {
	unfolded, turned := c.taps*c.places, make([]float32, len(c.w))
	b.each(c.groups*c.taps, c.out, func(_ *worker, r int) {
		w, to := c.weights(c.w, r/c.taps), turned[r*c.out:(r+1)*c.out]
		for i := range to {
			to[i] = w[i*c.taps+r%c.taps]
		}
	})
	b.run(taskFunc(func(wk *worker, u int) {
		image := wk.scratch.v[:unfolded]
		clear(image)
		b.mix(image, c.weights(turned, u), c.channels(grad, u, c.out*c.places), c.taps, c.out, c.places, wk.scratch.v[unfolded:])
		c.fold(c.channels(into, u, c.size()), image)
	}), c.images*c.groups, c.images*c.groups*c.out*unfolded)
}

// conv2dWeights adds the gradient of the weight.
func (b *Backend) conv2dWeights(c *convolution, dw []float32, grad, in mat.Floats) {
	image := b.pool.workers[0].scratch.v[:c.taps*c.places]
	for u := range c.images * c.groups {
		b.run(taskFunc(func(*worker, int) { unfold(c, image, c.channels(in, u, c.size())) }), 1, 0)
		dy := matmul.Rows(c.channels(grad, u, c.out*c.places), c.places)
		b.multiply(matmul.Product{C: mat.Floats{V: c.weights(dw, u), Stride: c.taps}, A: dy, B: matmul.Columns(image, c.places), Rows: c.out, Cols: c.taps, N: c.places, Add: true})
	}
}

// each calls f for every run of elements along a row of the images. Its arguments are the tap's
// row of the unfolded image, where the run begins there and in the images, the step between the
// elements that f reads, and the length of the run.
func (c *convolution) each(f func(unfolded, at, step, first, n int)) {
	kh, kw, width := c.rows.Kernel, c.cols.Kernel, c.cols.Places()
	for tap := range c.taps {
		channel, ky, kx := tap/(kh*kw), tap/kw%kh, tap%kw
		for i := range c.rows.Places() {
			y := c.rows.At(i, ky)
			to := tap*c.places + i*width
			if y < 0 || y >= c.rows.Size {
				f(to, 0, 0, 0, 0)
				continue
			}
			first, end := 0, width
			for first < end && c.cols.At(first, kx) < 0 {
				first++
			}
			for end > first && c.cols.At(end-1, kx) >= c.cols.Size {
				end--
			}
			f(to, (channel*c.rows.Size+y)*c.cols.Size+c.cols.At(first, kx), c.cols.Stride, first, end-first)
		}
	}
}

// unfold stores the element that each tap reads at each position.
func unfold[F float](c *convolution, dst, x []F) {
	width := c.cols.Places()
	c.each(func(to, at, step, first, n int) {
		row := dst[to : to+width]
		clear(row[:first])
		for i := range n {
			row[first+i] = x[at+i*step]
		}
		clear(row[first+n:])
	})
}

// fold adds each tap's values to the elements that it read.
func (c *convolution) fold(x, src []float32) {
	c.each(func(from, at, step, first, n int) {
		for i, v := range src[from+first : from+first+n] {
			x[at+i*step] += v
		}
	})
}
