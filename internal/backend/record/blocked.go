package record

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

var (
	_ backend.Averaged   = (*Recorder)(nil)
	_ backend.Indexed    = (*Recorder)(nil)
	_ backend.Compressed = (*Recorder)(nil)
)

// ChooseBlocks has no backward operation.
func (r *Recorder) ChooseBlocks(chosen, q tensor.Tensor, keys backend.KV, spans []backend.Span, b backend.BlockArgs) {
	r.write(chosen)
	r.compute.ChooseBlocks(chosen, q, keys, spans, b)
}

// AttentionBlocks requires that its pages do not change before the backward pass.
func (r *Recorder) AttentionBlocks(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, b backend.BlockArgs) {
	r.attend(dst, q, kv, spans, a, backend.ChosenBlocks{BlockArgs: b, Chosen: chosen}, func() { r.compute.AttentionBlocks(dst, q, chosen, kv, spans, a, b) })
}

// attend runs attention to selected blocks or entries and records its backward operation.
func (r *Recorder) attend(dst, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, chosen backend.ChosenBlocks, run func()) {
	if r.unrecorded(dst) {
		run()
		return
	}
	in, choice := r.keep(q), r.keep(chosen.Chosen)
	r.write(dst)
	run()
	spans = clonedSpans(spans)
	r.push(dst, func(dy tensor.Tensor) {
		r.idle(kv.K, false)
		r.idle(kv.V, false)
		chosen.Chosen, chosen.Sinks = r.value(choice), r.gradientOf(a.Sinks)
		r.compute.AttentionBlocksGrad(r.Gradient(q), r.kvGradient(kv), dy, r.value(in), kv, spans, a, chosen)
	})
}

// Choose has no backward operation.
func (r *Recorder) Choose(chosen, q, weights tensor.Tensor, keys backend.KV, spans []backend.Span, a backend.IndexArgs) {
	r.write(chosen)
	r.compute.Choose(chosen, q, weights, keys, spans, a)
}

// AttentionChosen has the backward operation of attention to blocks of one position. Its pages
// must not change before the backward pass.
func (r *Recorder) AttentionChosen(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs) {
	b := backend.BlockArgs{Heads: 1, Size: 1, Count: chosen.Cols()}
	r.attend(dst, q, kv, spans, a, backend.ChosenBlocks{BlockArgs: b, Chosen: chosen}, func() { r.compute.AttentionChosen(dst, q, chosen, kv, spans, a) })
}

// AttentionEntries requires that its pages do not change before the backward pass.
func (r *Recorder) AttentionEntries(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, e backend.EntryArgs) {
	r.attend(dst, q, kv, spans, a, backend.ChosenBlocks{Entries: e, Chosen: chosen}, func() { r.compute.AttentionEntries(dst, q, chosen, kv, spans, a, e) })
}

// Pool stores its operand.
func (r *Recorder) Pool(dst, x, bias tensor.Tensor, s backend.States, spans []backend.Span, a backend.PoolArgs) {
	if r.unrecorded(dst) {
		r.compute.Pool(dst, x, bias, s, spans, a)
		return
	}
	r.recurrence(dst, []tensor.Tensor{x}, s, func() { r.compute.Pool(dst, x, bias, s, spans, a) }, func(d, v []tensor.Tensor, dy tensor.Tensor, s backend.States) {
		r.compute.PoolGrad(d[0], r.gradientOf(bias), dy, v[0], bias, s, a)
	})
}

// AverageKeys has no backward operation: its results are only used to select blocks.
func (r *Recorder) AverageKeys(dst tensor.Tensor, keys backend.KV, spans []backend.Span, size int) {
	r.write(dst)
	r.compute.AverageKeys(dst, keys, spans, size)
}

// ChooseEntries has no backward operation.
func (r *Recorder) ChooseEntries(chosen, q, weights tensor.Tensor, keys backend.KV, spans []backend.Span, a backend.IndexArgs, e backend.EntryArgs) {
	r.write(chosen)
	r.compute.ChooseEntries(chosen, q, weights, keys, spans, a, e)
}

// clonedSpans returns a copy of spans, which the caller may change.
func clonedSpans(spans []backend.Span) []backend.Span {
	spans = slices.Clone(spans)
	for i := range spans {
		spans[i].Pages = slices.Clone(spans[i].Pages)
	}
	return spans
}
