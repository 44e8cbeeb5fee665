package backend

import "github.com/heftai/heft/internal/tensor"

// Images is implemented by a Backend that has the layers of convolutional networks, with their
// backward operations. Images are [images, channels, height, width]. In forward operations x and
// dst may both be float64, and in Conv2D also dst alone; sums are then float64. Backward
// operations are float32. As in [Gradients], they add to the gradients of the operands, and
// absent gradients are not computed.
type Images interface {
	// Conv2D computes the cross-correlation of x with weight [out, in/groups, kernel height,
	// kernel width]; bias [out] may be absent. Padding is 0.
	Conv2D(dst, x, weight, bias tensor.Tensor, a Conv2DArgs)
	// Conv2DGrad is the backward operation of Conv2D.
	Conv2DGrad(dx, dweight, dbias, dy, x, weight tensor.Tensor, a Conv2DArgs)
	// Pool2D reduces the part of a channel that is under the window. from, with one element per
	// element of dst, is set to the position of the maximum in the channel: the first one if
	// there are several. NaN counts as the maximum. For means from is nil.
	Pool2D(dst tensor.Tensor, from []int32, x tensor.Tensor, a Pool2DArgs)
	// Pool2DGrad is the backward operation of Pool2D.
	Pool2DGrad(dx, dy tensor.Tensor, from []int32, a Pool2DArgs)
}

// Conv2DArgs holds the parameters of a convolution.
type Conv2DArgs struct {
	Rows, Cols Window
	Groups     int // each has its own input and output channels
}

// Pool2DArgs holds the parameters of a pool.
type Pool2DArgs struct {
	Rows, Cols Window
	Max        bool // the maximum, otherwise the mean; padding counts as zeros of a mean, and never as a maximum
}

// A Window slides along one dimension of images.
type Window struct {
	Size                              int // size of the image
	Kernel, Stride, Padding, Dilation int
	// Parts, if not 0, is a number of nearly equal parts of the image that a pool reduces
	// instead. They overlap if Size is not a multiple of Parts.
	Parts int
}

// Places returns the number of positions of the window.
func (w Window) Places() int {
	if w.Parts > 0 {
		return w.Parts
	}
	free := w.Size + 2*w.Padding - w.Dilation*(w.Kernel-1) - 1
	if free < 0 {
		return 0
	}
	return free/w.Stride + 1
}

// At returns the position in the image of element k of the kernel at position i. Positions
// outside of [0, Size) are padding.
func (w Window) At(i, k int) int { return i*w.Stride - w.Padding + k*w.Dilation }

// Span returns the elements [lo, hi) of the image under position i, and their number including
// padding. Elements beyond the padding are not counted.
func (w Window) Span(i int) (lo, hi, n int) {
	if w.Parts > 0 {
		lo, hi = i*w.Size/w.Parts, ((i+1)*w.Size+w.Parts-1)/w.Parts
		return lo, hi, hi - lo
	}
	at := w.At(i, 0)
	return max(at, 0), min(at+w.Kernel, w.Size), min(at+w.Kernel, w.Size+w.Padding) - at
}
