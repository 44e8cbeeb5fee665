package record

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.NGrams = (*Recorder)(nil)

// DilatedConv stores its operand, as ShortConv does.
func (r *Recorder) DilatedConv(dst, x, weight tensor.Tensor, s backend.States, step int, act meta.Activation) {
	if r.unrecorded(dst) {
		r.compute.DilatedConv(dst, x, weight, s, step, act)
		return
	}
	in := r.keep(x)
	r.write(dst)
	r.compute.DilatedConv(dst, x, weight, s, step, act)
	s.Spans = slices.Clone(s.Spans)
	r.push(dst, func(dy tensor.Tensor) {
		r.compute.DilatedConvGrad(backend.ConvInputs{X: r.Gradient(x), Weight: r.gradientOf(weight)}, dy, backend.ConvInputs{X: r.value(in), Weight: weight}, s, step, act)
	}, x)
}

// GateStreams stores its operands. dst may be one of them.
func (r *Recorder) GateStreams(dst, value, keys, queries tensor.Tensor) {
	if r.unrecorded(dst) {
		r.compute.GateStreams(dst, value, keys, queries)
		return
	}
	v, k, q := r.keep(value), r.keep(keys), r.keep(queries)
	r.write(dst)
	r.compute.GateStreams(dst, r.value(v), r.value(k), r.value(q))
	r.push(dst, func(dy tensor.Tensor) {
		r.compute.GateStreamsGrad(r.Gradient(value), r.Gradient(keys), r.Gradient(queries), dy, r.value(v), r.value(k), r.value(q))
	}, value, keys, queries)
}
