package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

// attentionGrad is one backward operation of Attention. A unit is all queries of a span that
// share a key/value head, in order, because they add to the gradients of the same keys.
type attentionGrad struct {
	attentionOp
	cut     // of all spans
	dq, dy  mat.Floats
	dk, dv  pages
	dsinks  []float32  // of each span and head, or nil
	dstates mat.Floats // of biases of distances; or nil
	// dprofiles are those of each span and key/value head, as the profiles lie; or nil.
	dprofiles []float32
	chosen    mat.Floats        // blocks of each row
	blocks    backend.BlockArgs // with Count 0 for all positions
}

// AttentionGrad recomputes the scores, one tile of queries at a time.
func (b *Backend) AttentionGrad(dq tensor.Tensor, dkv backend.KV, d backend.ScoreGradients, dy, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs) {
	if b.failed.Load() {
		return
	}
	b.reverseAttention(&attentionGrad{attentionOp: attentionOp{set: b.set, spans: spans, a: a, group: a.Heads / a.KVHeads}}, dq, dkv, d, dy, q, kv)
}

// AttentionBlocksGrad computes the scores of all positions and ignores those that are not chosen.
func (b *Backend) AttentionBlocksGrad(dq tensor.Tensor, dkv backend.KV, dy, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, blocks backend.ChosenBlocks) {
	if b.failed.Load() {
		return
	}
	if blocks.Entries.Rate > 0 {
		b.attentionEntriesGrad(dq, dkv, dy, q, kv, spans, a, blocks)
		return
	}
	op := &attentionGrad{attentionOp: attentionOp{set: b.set, spans: spans, a: a, group: a.Heads / a.KVHeads}, blocks: blocks.BlockArgs}
	var ok bool
	if op.chosen, ok = b.floats("attention gradient", "choice", blocks.Chosen, q.Rows(), blocks.Heads*blocks.Count); ok {
		b.reverseAttention(op, dq, dkv, backend.ScoreGradients{Sinks: blocks.Sinks}, dy, q, kv)
	}
}

// reverseAttention runs op with its operands.
func (b *Backend) reverseAttention(op *attentionGrad, dq tensor.Tensor, dkv backend.KV, d backend.ScoreGradients, dy, q tensor.Tensor, kv backend.KV) {
	n, a, spans := q.Rows(), op.a, op.spans
	const name = "attention gradient"
	var ok [9]bool
	op.q, ok[0] = b.floats(name, "query", q, n, a.Heads*a.Dim)
	op.dy, ok[1] = b.floats(name, "result", dy, n, a.Heads*a.ValueDim)
	op.dq, ok[2] = b.floats(name, "query's gradient", dq, n, a.Heads*a.Dim)
	op.k, ok[3] = b.pages("keys", &kv, kv.K, a.KVHeads, a.Dim)
	op.v, ok[4] = b.pages("values", &kv, kv.V, a.KVHeads, a.ValueDim)
	op.dk, ok[5] = b.pages("gradients of keys", &dkv, dkv.K, a.KVHeads, a.Dim)
	op.dv, ok[6] = b.pages("gradients of values", &dkv, dkv.V, a.KVHeads, a.ValueDim)
	op.sinks, ok[7] = b.vector(name, "sinks", a.Sinks, slotSinks, a.Heads)
	into, _, ok8 := b.gradient(name, "gradient of sinks", d.Sinks, a.Heads)
	ok[8] = ok8
	if ok != [9]bool{true, true, true, true, true, true, true, true, true} {
		return
	}
	profiles, ok9 := op.openRelative(b, name, n, &d.Relative)
	if !ok9 {
		return
	}
	if op.dk.format != mat.Float32 || op.dv.format != mat.Float32 || op.k.blocks+op.v.blocks > 0 {
		b.fail("attention gradient: keys and values in blocks, or gradients of them that are not float32")
		return
	}
	longest, rows, good := b.checkSpans(spans, n, min(op.k.count, op.v.count, op.dk.count, op.dv.count), kv.PageTokens)
	if !good {
		return
	}
	op.cut = cut{heads: min(op.group, tileRows)}
	op.tokens, op.pitch = max(1, tileRows/op.heads), longest
	if into != nil {
		op.dsinks = make([]float32, len(spans)*a.Heads)
	}
	if !b.reserve(op.tokens * op.heads * (2*longest + 2*a.Dim + a.ValueDim)) {
		return
	}
	b.run(taskFunc(func(w *worker, unit int) { op.unit(w.scratch.v, unit/a.KVHeads, unit%a.KVHeads) }), len(spans)*a.KVHeads, rows*longest*a.Heads*8)
	for i, v := range op.dsinks {
		into[i%a.Heads] += v
	}
	op.closeRelative(profiles)
}

// unit computes the queries of a span for one key/value head, tile by tile.
func (op *attentionGrad) unit(scratch []float32, span, kvHead int) {
	s := &op.spans[span]
	for first := 0; first < s.Rows; first += op.tokens {
		for part := 0; part < op.group; part += op.heads {
			t := tileOf{span: s, kvHead: kvHead, first: first, tokens: min(op.tokens, s.Rows-first)}
			t.head, t.heads = kvHead*op.group+part, min(op.heads, op.group-part)
			op.tile(scratch, &t, span)
		}
	}
}

// tile adds the gradients of the queries of one tile. Row i of its matrices is a token and a
// head, as in attention.
func (op *attentionGrad) tile(memory []float32, t *tileOf, span int) {
	dim, width, m := op.a.Dim, op.a.ValueDim, t.tokens*t.heads
	scratch := cutter(memory)
	q, dq, dy := scratch.take(m*dim), scratch.take(m*dim), scratch.take(m*width)
	scores := mat.Floats{V: scratch.take(m * op.pitch), Stride: op.pitch}
	grads := mat.Floats{V: scratch.take(m * op.pitch), Stride: op.pitch}
	for i := range t.tokens {
		r := t.span.First + t.first + i
		copy(q[i*t.heads*dim:][:t.heads*dim], op.q.V[r*op.q.Stride+t.head*dim:])
		copy(dy[i*t.heads*width:][:t.heads*width], op.dy.V[r*op.dy.Stride+t.head*width:])
	}
	clear(dq)
	lo, _ := op.visible(t.span, t.first)
	_, hi := op.visible(t.span, t.first+t.tokens-1)
	op.k.each(t.span.Pages, lo, hi, func(position, n int, k []byte) {
		op.set.GEMV.Mul(&gemv.Product{Y: from(scores, 0, position-lo), W: op.k.headOf(k, t.kvHead), X: mat.Floats{V: q, Stride: dim}, Rows: n, Tokens: m, N: dim})
	})
	op.v.each(t.span.Pages, lo, hi, func(position, n int, v []byte) {
		op.set.GEMV.Mul(&gemv.Product{Y: from(grads, 0, position-lo), W: op.v.headOf(v, t.kvHead), X: mat.Floats{V: dy, Stride: width}, Rows: n, Tokens: m, N: width})
	})
	for i := range m {
		own, end := op.visible(t.span, t.first+i/t.heads)
		head := t.head + i%t.heads
		if op.blocks.Count > 0 && end > op.blocks.Most() {
			op.sparse(row(scores, i, hi-lo), row(grads, i, hi-lo), end, t.span.First+t.first+i/t.heads, head, span)
			continue
		}
		op.query(row(scores, i, hi-lo), row(grads, i, hi-lo), own-lo, end-lo, t.span.First+t.first+i/t.heads, head, span)
	}
	op.k.each(t.span.Pages, lo, hi, func(position, n int, k []byte) {
		op.set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: dq, Stride: dim}, P: from(grads, 0, position-lo), Step: 1, V: op.k.headOf(k, t.kvHead), Keys: n, Tokens: m, Cols: dim})
	})
	op.intoPages(op.dk, t, lo, hi, grads, mat.Floats{V: q, Stride: dim}, dim)
	op.intoPages(op.dv, t, lo, hi, scores, mat.Floats{V: dy, Stride: width}, width)
	for i := range t.tokens {
		op.set.Vector.AddScaled(op.dq.V[(t.span.First+t.first+i)*op.dq.Stride+t.head*dim:][:t.heads*dim], dq[i*t.heads*dim:], 1)
	}
}

// query turns one query's scores into weights, and the gradients of the weights into those of the
// dot products of keys and query. The query sees [lo, hi); elements outside become 0.
func (op *attentionGrad) query(scores, grads []float32, lo, hi, query, head, span int) {
	for _, v := range [...][]float32{scores, grads} {
		clear(v[:lo])
		clear(v[hi:])
	}
	p, g := scores[lo:hi], grads[lo:hi]
	var capped []float32
	if softcap := op.a.Softcap; softcap > 0 { // its derivative, before the weights take its place
		capped = make([]float32, len(p))
		for i, v := range p {
			u := math.Tanh(float64(v * op.a.Scale / softcap))
			capped[i] = float32(1 - u*u)
		}
	}
	op.softmax(p, query, head)
	mean := op.set.Vector.Dot64(p, g)
	if op.dsinks != nil {
		rest := 1.0
		for _, v := range p {
			rest -= float64(v)
		}
		op.dsinks[span*op.a.Heads+head] -= float32(rest * mean)
	}
	op.set.Grad.SoftmaxGrad(g, p, float32(mean), op.a.Scale)
	for i, v := range capped {
		g[i] *= v
	}
	op.relativeGrad(g, query, head, span)
}

// sparse is query for a row r that sees its chosen blocks of the positions before end, and the
// tail after them.
func (op *attentionGrad) sparse(scores, grads []float32, end, r, head, span int) {
	count := op.blocks.Count
	p, g := make([]float32, 0, op.blocks.Most()), make([]float32, 0, op.blocks.Most())
	chosen := row(op.chosen, r, op.blocks.Heads*count)[head*op.blocks.Heads/op.a.Heads*count:][:count]
	op.eachBlock(chosen, end, func(lo, hi int) { p, g = append(p, scores[lo:hi]...), append(g, grads[lo:hi]...) })
	op.query(p, g, 0, len(p), r, head, span)
	clear(scores)
	clear(grads)
	op.eachBlock(chosen, end, func(lo, hi int) {
		n := copy(scores[lo:hi], p)
		copy(grads[lo:hi], g)
		p, g = p[n:], g[n:]
	})
}

// eachBlock calls f for the positions [lo, hi) of each chosen block and of the tail before end.
func (op *attentionGrad) eachBlock(chosen []float32, end int, f func(lo, hi int)) {
	size := op.blocks.Size
	for _, bits := range chosen {
		lo := int(math.Float32bits(bits)) * size
		f(lo, min(lo+size, end))
	}
	if op.blocks.Tail && end%size != 0 {
		f(end-end%size, end)
	}
}

// intoPages adds the products of weights and rows to the pages of positions [lo, hi).
func (op *attentionGrad) intoPages(to pages, t *tileOf, lo, hi int, weights, rows mat.Floats, cols int) {
	to.each(t.span.Pages, lo, hi, func(position, n int, data []byte) {
		w := to.headOf(data, t.kvHead)
		y := tensor.Tensor{Data: w.Data}.F32()
		op.set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: y, Stride: w.Stride / 4}, P: mat.Floats{V: weights.V[position-lo:], Stride: 1}, Step: weights.Stride, V: weightsOf(rows.V, rows.Stride), Keys: t.tokens * t.heads, Tokens: n, Cols: cols})
	})
}

// headOf is one head of the tokens from the first byte of data on.
func (p *pages) headOf(data []byte, head int) mat.Weights {
	return mat.Weights{Data: data[head*p.head:], Stride: p.row, Format: p.format}
}
