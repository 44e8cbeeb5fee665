package record

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Alternating = (*Recorder)(nil)

// PredictStreams stores its operands.
func (r *Recorder) PredictStreams(streams, weights tensor.Tensor) {
	if r.unrecorded(streams) {
		r.compute.PredictStreams(streams, weights)
		return
	}
	in, by := r.keep(streams), r.keep(weights)
	r.write(streams)
	r.compute.PredictStreams(streams, weights)
	r.push(streams, func(dy tensor.Tensor) {
		r.compute.PredictStreamsGrad(r.Gradient(streams), r.Gradient(weights), dy, r.value(in), r.value(by))
	}, streams)
}

// CorrectStreams stores its operands, and of the streams the active one.
func (r *Recorder) CorrectStreams(streams, y, weights tensor.Tensor, active int) {
	if r.unrecorded(streams) {
		r.compute.CorrectStreams(streams, y, weights, active)
		return
	}
	in, other, by := r.keep(streams.Columns(active*y.Cols(), (active+1)*y.Cols())), r.keep(y), r.keep(weights)
	r.write(streams)
	r.compute.CorrectStreams(streams, y, weights, active)
	r.push(streams, func(dy tensor.Tensor) {
		r.compute.CorrectStreamsGrad(r.Gradient(streams), r.Gradient(y), r.Gradient(weights), dy, r.value(in), r.value(other), r.value(by), active)
	}, streams)
}

// Magnify stores its operands.
func (r *Recorder) Magnify(x, as tensor.Tensor) {
	if r.unrecorded(x) {
		r.compute.Magnify(x, as)
		return
	}
	in, like := r.keep(x), r.keep(as)
	r.write(x)
	r.compute.Magnify(x, as)
	r.push(x, func(dy tensor.Tensor) {
		r.compute.MagnifyGrad(r.Gradient(x), r.Gradient(as), dy, r.value(in), r.value(like))
	}, x)
}

// CutOff stores its operand.
func (r *Recorder) CutOff(x tensor.Tensor, by float32) {
	if r.unrecorded(x) {
		r.compute.CutOff(x, by)
		return
	}
	in := r.keep(x)
	r.write(x)
	r.compute.CutOff(x, by)
	r.push(x, func(dy tensor.Tensor) { r.compute.CutOffGrad(r.Gradient(x), dy, r.value(in), by) }, x)
}
