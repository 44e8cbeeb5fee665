package record

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Blocked = (*Recorder)(nil)

// ChooseBlocks has no reverse.
func (r *Recorder) ChooseBlocks(chosen, q tensor.Tensor, keys backend.KV, spans []backend.Span, b backend.BlockArgs) {
	if r.on {
		r.write(chosen)
	}
	r.compute.ChooseBlocks(chosen, q, keys, spans, b)
}

// AttentionBlocks requires that its pages do not change before the reverse.
func (r *Recorder) AttentionBlocks(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, b backend.BlockArgs) {
	if !r.on {
		r.compute.AttentionBlocks(dst, q, chosen, kv, spans, a, b)
		return
	}
	in, choice := r.keep(q), r.keep(chosen)
	r.write(dst)
	r.compute.AttentionBlocks(dst, q, chosen, kv, spans, a, b)
	spans = clonedSpans(spans)
	r.push(dst, func(dy tensor.Tensor) {
		r.idle(kv.K, false)
		r.idle(kv.V, false)
		r.compute.AttentionBlocksGrad(r.Gradient(q), r.kvGradient(kv), dy, r.value(in), kv, spans, a, backend.ChosenBlocks{BlockArgs: b, Chosen: r.value(choice)})
	})
}

// clonedSpans returns spans that a caller does not change.
func clonedSpans(spans []backend.Span) []backend.Span {
	spans = slices.Clone(spans)
	for i := range spans {
		spans[i].Pages = slices.Clone(spans[i].Pages)
	}
	return spans
}
