package record

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Streams = (*Recorder)(nil)

// StreamWeights stores its operand.
func (r *Recorder) StreamWeights(weights, base, scale tensor.Tensor, a backend.StreamArgs) {
	if r.unrecorded(weights) {
		r.compute.StreamWeights(weights, base, scale, a)
		return
	}
	in := r.keep(weights)
	r.write(weights)
	r.compute.StreamWeights(weights, base, scale, a)
	r.push(weights, func(dy tensor.Tensor) {
		r.compute.StreamWeightsGrad(r.Gradient(weights), r.gradientOf(base), r.gradientOf(scale), dy, r.value(in), base, scale, a)
	}, weights)
}

// CollapseStreams stores its operands.
func (r *Recorder) CollapseStreams(dst, x, weights tensor.Tensor, a backend.StreamArgs) {
	if r.unrecorded(dst) {
		r.compute.CollapseStreams(dst, x, weights, a)
		return
	}
	in, by := r.keep(x), r.keep(weights)
	r.write(dst)
	r.compute.CollapseStreams(dst, x, weights, a)
	r.push(dst, func(dy tensor.Tensor) {
		r.compute.CollapseStreamsGrad(r.Gradient(x), r.Gradient(weights), dy, r.value(in), r.value(by), a)
	}, x, weights)
}

// ExpandStreams keeps its operands.
func (r *Recorder) ExpandStreams(x, y, weights tensor.Tensor, a backend.StreamArgs) {
	if r.unrecorded(x) {
		r.compute.ExpandStreams(x, y, weights, a)
		return
	}
	in, branch, by := r.keep(x), r.keep(y), r.keep(weights)
	r.write(x)
	r.compute.ExpandStreams(x, y, weights, a)
	r.push(x, func(dy tensor.Tensor) {
		r.compute.ExpandStreamsGrad(r.Gradient(x), r.Gradient(y), r.Gradient(weights), dy, r.value(in), r.value(branch), r.value(by), a)
	}, x)
}
