package record

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var (
	_ backend.Recurrent     = (*Recorder)(nil)
	_ backend.Scans         = (*Recorder)(nil)
	_ backend.GatedUnits    = (*Recorder)(nil)
	_ backend.KeyedAverages = (*Recorder)(nil)
)

// Operations with states have backward operations for whole sequences, whose spans have no slots.

// ShortConv stores its operand.
func (r *Recorder) ShortConv(dst, x, weight, bias tensor.Tensor, s backend.States, act meta.Activation) {
	if r.unrecorded(dst) {
		r.compute.ShortConv(dst, x, weight, bias, s, act)
		return
	}
	in := r.keep(x)
	r.write(dst)
	r.compute.ShortConv(dst, x, weight, bias, s, act)
	s.Spans = slices.Clone(s.Spans)
	r.push(dst, func(dy tensor.Tensor) {
		r.compute.ShortConvGrad(backend.ConvInputs{X: r.Gradient(x), Weight: r.gradientOf(weight), Bias: r.gradientOf(bias)}, dy,
			backend.ConvInputs{X: r.value(in), Weight: weight, Bias: bias}, s, act)
	}, x)
}

// DeltaRule stores its operands, but no states: its backward operation recomputes them.
func (r *Recorder) DeltaRule(dst tensor.Tensor, in backend.DeltaInputs, s backend.States, a backend.DeltaArgs) {
	if r.unrecorded(dst) {
		r.compute.DeltaRule(dst, in, s, a)
		return
	}
	r.recurrence(dst, []tensor.Tensor{in.Q, in.K, in.V, in.A, in.B}, s, func() { r.compute.DeltaRule(dst, in, s, a) }, func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States) {
		r.compute.DeltaRuleGrad(backend.DeltaInputs{Q: d[0], K: d[1], V: d[2], A: d[3], B: d[4], ALog: r.gradientOf(in.ALog), DTBias: r.gradientOf(in.DTBias)}, dy,
			backend.DeltaInputs{Q: v[0], K: v[1], V: v[2], A: v[3], B: v[4], ALog: in.ALog, DTBias: in.DTBias}, s, a)
	})
}

// StateSpace stores its operands, as DeltaRule does.
func (r *Recorder) StateSpace(dst tensor.Tensor, in backend.StateSpaceInputs, s backend.States, a backend.StateSpaceArgs) {
	if r.unrecorded(dst) {
		r.compute.StateSpace(dst, in, s, a)
		return
	}
	r.recurrence(dst, []tensor.Tensor{in.X, in.B, in.C, in.DT}, s, func() { r.compute.StateSpace(dst, in, s, a) }, func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States) {
		r.compute.StateSpaceGrad(backend.StateSpaceInputs{X: d[0], B: d[1], C: d[2], DT: d[3], ALog: r.gradientOf(in.ALog), DTBias: r.gradientOf(in.DTBias), D: r.gradientOf(in.D)}, dy,
			backend.StateSpaceInputs{X: v[0], B: v[1], C: v[2], DT: v[3], ALog: in.ALog, DTBias: in.DTBias, D: in.D}, s, a)
	})
}

// SelectiveScan stores its operands, as DeltaRule does.
func (r *Recorder) SelectiveScan(dst tensor.Tensor, in backend.SelectiveInputs, s backend.States, a backend.SelectiveArgs) {
	if r.unrecorded(dst) {
		r.compute.SelectiveScan(dst, in, s, a)
		return
	}
	r.recurrence(dst, []tensor.Tensor{in.X, in.B, in.C, in.DT}, s, func() { r.compute.SelectiveScan(dst, in, s, a) }, func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States) {
		r.compute.SelectiveScanGrad(backend.SelectiveInputs{X: d[0], B: d[1], C: d[2], DT: d[3], ALog: r.gradientOf(in.ALog), D: r.gradientOf(in.D)}, dy,
			backend.SelectiveInputs{X: v[0], B: v[1], C: v[2], DT: v[3], ALog: in.ALog, D: in.D}, s, a)
	})
}

// GatedLRU stores its operands, as DeltaRule does.
func (r *Recorder) GatedLRU(dst tensor.Tensor, in backend.GatedLRUInputs, s backend.States, a backend.GatedLRUArgs) {
	if r.unrecorded(dst) {
		r.compute.GatedLRU(dst, in, s, a)
		return
	}
	r.recurrence(dst, []tensor.Tensor{in.X, in.Gate}, s, func() { r.compute.GatedLRU(dst, in, s, a) }, func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States) {
		r.compute.GatedLRUGrad(backend.GatedLRUInputs{X: d[0], Gate: d[1], Rate: r.gradientOf(in.Rate)}, dy, backend.GatedLRUInputs{X: v[0], Gate: v[1], Rate: in.Rate}, s, a)
	})
}

// WKV stores its operands, as DeltaRule does.
func (r *Recorder) WKV(dst tensor.Tensor, in backend.WKVInputs, s backend.States, a backend.WKVArgs) {
	if r.unrecorded(dst) {
		r.compute.WKV(dst, in, s, a)
		return
	}
	r.recurrence(dst, []tensor.Tensor{in.K, in.V}, s, func() { r.compute.WKV(dst, in, s, a) }, func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States) {
		r.compute.WKVGrad(backend.WKVInputs{K: d[0], V: d[1], Decay: r.gradientOf(in.Decay), First: r.gradientOf(in.First)}, dy,
			backend.WKVInputs{K: v[0], V: v[1], Decay: in.Decay, First: in.First}, s, a)
	})
}

// recurrence runs an operation with states and records its backward operation. reverse receives
// the gradients of the operands, their values, and the gradient of the result.
func (r *Recorder) recurrence(dst tensor.Tensor, operands []tensor.Tensor, s backend.States, compute func(), reverse func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States)) {
	kept := r.keepAll(operands)
	r.write(dst)
	compute()
	s.Spans = slices.Clone(s.Spans)
	r.push(dst, func(dy tensor.Tensor) {
		v, d := r.valuesOf(kept), r.gradientsOf(operands)
		reverse(d, v, dy, s)
	}, operands...)
}

// keepAll stores operands.
func (r *Recorder) keepAll(operands []tensor.Tensor) []int {
	kept := make([]int, len(operands))
	for i, t := range operands {
		kept[i] = r.keep(t)
	}
	return kept
}

// valuesOf returns the values that keepAll stored.
func (r *Recorder) valuesOf(kept []int) []tensor.Tensor {
	values := make([]tensor.Tensor, len(kept))
	for i, k := range kept {
		values[i] = r.value(k)
	}
	return values
}

// gradientsOf returns the gradients of operands.
func (r *Recorder) gradientsOf(operands []tensor.Tensor) []tensor.Tensor {
	gradients := make([]tensor.Tensor, len(operands))
	for i, t := range operands {
		gradients[i] = r.Gradient(t)
	}
	return gradients
}
