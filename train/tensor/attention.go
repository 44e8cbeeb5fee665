package tensor

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	view "github.com/heftai/heft/internal/tensor"
)

// AttentionOptions configures [Tape.Attention].
type AttentionOptions struct {
	// Scale multiplies the products of queries and keys. 0 means 1/√width.
	Scale float64
	// Causal restricts each position to itself and earlier positions.
	Causal bool
	// Window, if positive, is the number of positions that a causal position attends to,
	// including itself.
	Window int
	// Mask, if not nil, is added to the scaled products: 0 keeps a key, -Inf excludes it. It
	// broadcasts to [batch heads length length] and may have a gradient; [Tape.Keep] makes one
	// from booleans. A query without remaining keys gets zeros. With a mask, k and v may have
	// another length than q.
	Mask *Tensor
}

// Attention computes softmax(q·kᵀ·scale)·v for each head. q is [batch, length, heads, width]; k
// and v are [batch, length, groups, width]. heads is a multiple of groups, and adjacent heads
// share a group. If Causal is set and Mask is not, the probabilities are not stored: Backward
// computes them again.
func (tp *Tape) Attention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	if !tp.ready("attention", q, k, v) {
		return tp.void()
	}
	if o.Mask != nil {
		if !tp.ready("attention", o.Mask) {
			return tp.void()
		}
		if o.Window > 0 && !o.Causal {
			return tp.fail("attention: got window %d for q of shape %v without Causal, want Causal", o.Window, q)
		}
		return tp.composedAttention(q, k, v, o)
	}
	if q.dims() != 4 || !k.is(v.shape...) || k.dims() != 4 || k.shape[2] == 0 || q.last() == 0 || q.shape[2]%k.shape[2] != 0 ||
		!k.is(q.shape[0], q.shape[1], k.shape[2], q.shape[3]) {
		return tp.fail("attention: q has shape %v, k %v, v %v, want [batch length heads width] and [batch length groups width]", q, k, v)
	}
	if o.Window > 0 && !o.Causal {
		return tp.fail("attention: got window %d for q of shape %v without Causal, want Causal", o.Window, q)
	}
	if tp.autocast == Float16 {
		return tp.lowered(func(in []*Tensor) *Tensor { return tp.Attention(in[0], in[1], in[2], o) }, q, k, v)
	}
	if !o.Causal {
		return tp.composedAttention(q, k, v, o)
	}
	return tp.causalAttention(q, k, v, o)
}

// causalAttention runs the backend's attention. Each sequence of the batch is a page of keys and
// values.
func (tp *Tape) causalAttention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	batch, length, width := q.shape[0], q.shape[1], q.last()
	out := tp.blank(q.shape, q, k, v)
	if len(out.data) == 0 {
		return tp.record(out, func([]float32) {})
	}
	a := backend.AttentionArgs{Heads: q.shape[2], KVHeads: k.shape[2], Dim: width, ValueDim: width, Scale: o.scale(width), Window: o.Window}
	spans := make([]backend.Span, batch)
	for i := range spans {
		spans[i] = backend.Span{First: i * length, Rows: length, Pages: []int32{int32(i)}}
	}
	pages := func(keys, values []float32) backend.KV {
		shape := []int{batch, length, a.KVHeads * width}
		return backend.KV{K: view.Floats(keys, shape...), V: view.Floats(values, shape...), PageTokens: length}
	}
	tp.compute("attention", func(b *cpu.Backend) {
		b.Attention(matrixOf(out.data, a.Heads*width), matrixOf(q.data, a.Heads*width), pages(k.data, v.data), spans, a)
	})
	return tp.record(out, func(grad []float32) {
		var unwanted [][]float32
		into := func(t *Tensor) []float32 {
			if g := tp.gradient(t); g != nil {
				return g
			}
			unwanted = append(unwanted, tp.borrow(len(t.data)))
			return unwanted[len(unwanted)-1]
		}
		dq, dkv := into(q), pages(into(k), into(v))
		tp.compute("attention", func(b *cpu.Backend) {
			b.AttentionGrad(matrixOf(dq, a.Heads*width), dkv, backend.ScoreGradients{}, matrixOf(grad, a.Heads*width), matrixOf(q.data, a.Heads*width), pages(k.data, v.data), spans, a)
		})
		for _, g := range unwanted {
			tp.giveBack(g)
		}
	})
}

// scale returns the factor of products of vectors with the given width.
func (o *AttentionOptions) scale(width int) float32 {
	if o.Scale == 0 {
		return float32(1 / math.Sqrt(float64(width)))
	}
	return float32(o.Scale)
}
