package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.CompressedGradients = (*Backend)(nil)

// poolGrad is one call of PoolGrad. A unit is some channels of all entries.
type poolGrad struct {
	entryPool
	dx, dy mat.Floats // dx.V may be nil
	dbias  []float32  // or nil
}

// PoolGrad computes the softmax again.
func (b *Backend) PoolGrad(dx, dbias, dy, x, bias tensor.Tensor, s backend.States, a backend.PoolArgs) {
	if b.failed.Load() {
		return
	}
	const name = "pool gradient"
	if a.Rate < 1 || a.Dim < 1 {
		b.fail("%s: invalid arguments: %+v", name, a)
		return
	}
	rows := x.Rows()
	op := poolGrad{entryPool: entryPool{a: a, series: a.Series()}}
	var ok [6]bool
	op.x, ok[0] = b.floats(name, "operand", x, rows, 2*op.series*a.Dim)
	op.dy, ok[1] = b.floats(name, "result", dy, rows, a.Dim)
	op.dx, ok[2] = b.optional(name, "operand's gradient", dx, rows, 2*op.series*a.Dim)
	op.bias, ok[3] = b.vector(name, "bias", bias, slotBias, a.Rate*op.series*a.Dim)
	op.dbias, _, ok[4] = b.gradient(name, "bias's gradient", dbias, a.Rate*op.series*a.Dim)
	op.states, ok[5] = b.states(name, s, rows, a.State())
	if ok != [6]bool{true, true, true, true, true, true} || !b.wholeSequences(name, &op.states) {
		return
	}
	b.run(taskFunc(func(_ *worker, unit int) {
		begin := unit * poolChannels
		for i := range op.states.spans {
			for position := a.Rate - 1; position < op.states.spans[i].Rows; position += a.Rate {
				op.entry(op.states.spans[i].First, position, begin, min(begin+poolChannels, a.Dim))
			}
		}
	}), ceil(a.Dim, poolChannels), 128*rows*op.series*a.Dim)
}

// entry adds the gradients of channels [begin, end) of the entry that ends at a position of the sequence that begins at row
// start.
func (op *poolGrad) entry(start, position, begin, end int) {
	first, width := op.first(position), op.series*op.a.Dim
	weights := make([]float64, position+1-first)
	dy := row(op.dy, start+position, op.a.Dim)
	for c := begin; c < end; c++ {
		// at is where the value of a token is in its row, and where its bias is. Its gate is width behind the value.
		at := func(p int) (x []float32, value, bias int) {
			series := op.seriesOf(p, position)
			return row(op.x, start+p, 2*width), series*op.a.Dim + c, (p%op.a.Rate*op.series+series)*op.a.Dim + c
		}
		top, total, sum := math.Inf(-1), 0.0, 0.0
		for i := range weights {
			x, value, bias := at(first + i)
			weights[i] = float64(x[width+value] + op.bias[bias])
			top = max(top, weights[i])
		}
		for i := range weights {
			x, value, _ := at(first + i)
			weights[i] = math.Exp(weights[i] - top)
			total += weights[i]
			sum += weights[i] * float64(x[value])
		}
		for i := range weights {
			x, value, bias := at(first + i)
			slope := weights[i] / total * float64(dy[c])
			gate := float32(slope * (float64(x[value]) - sum/total))
			if op.dx.V != nil {
				dx := row(op.dx, start+first+i, 2*width)
				dx[value] += float32(slope)
				dx[width+value] += gate
			}
			if op.dbias != nil {
				op.dbias[bias] += gate
			}
		}
	}
}

// entriesGrad is a reverse of AttentionEntries. A unit is a sequence, whose rows add to the gradients of the same keys in
// order.
type entriesGrad struct {
	attentionGrad // but for values, which are keys
	seen          attentionEntries
}

// attentionEntriesGrad computes the scores of each row again.
func (b *Backend) attentionEntriesGrad(dq tensor.Tensor, dkv backend.KV, dy, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, chosen backend.ChosenBlocks) {
	const name = "gradient of attention to entries"
	e, n := chosen.Entries, q.Rows()
	op := entriesGrad{attentionGrad: attentionGrad{attentionOp: attentionOp{set: b.set, spans: spans, a: a}}}
	var ok [6]bool
	op.seen, ok[0] = b.entriesOf(q, chosen.Chosen, kv, spans, a, e)
	op.q, op.k, op.sinks = op.seen.q, op.seen.k, op.seen.sinks
	op.dy, ok[1] = b.floats(name, "result", dy, n, a.Heads*a.Dim)
	op.dq, ok[2] = b.floats(name, "query's gradient", dq, n, a.Heads*a.Dim)
	op.dk, ok[3] = b.pages("gradients of keys", &dkv, dkv.K, 1, a.Dim)
	op.dv, ok[4] = b.pages("gradients of entries", &dkv, dkv.V, 1, e.First+e.Extra)
	into, _, ok5 := b.gradient(name, "gradient of sinks", chosen.Sinks, a.Heads)
	ok[5] = ok5
	if ok != [6]bool{true, true, true, true, true, true} {
		return
	}
	if op.dk.format != mat.Float32 || op.dv.format != mat.Float32 || op.dk.count < op.k.count || op.dv.count < op.seen.entries.pages.count {
		b.fail("%s: gradients of keys or entries that are not float32, or of fewer pages", name)
		return
	}
	if into != nil {
		op.dsinks = make([]float32, len(spans)*a.Heads)
	}
	wide := max(op.k.widened(), op.seen.entries.pages.widened())
	if !b.reserve(2*op.seen.most*(a.Heads+a.Dim) + a.Heads*a.Dim + wide) {
		return
	}
	b.run(taskFunc(func(w *worker, unit int) {
		for i := range spans[unit].Rows {
			op.row(w.scratch.v, unit, i)
		}
	}), len(spans), n*op.seen.most*a.Heads*a.Dim)
	for i, v := range op.dsinks {
		into[i%a.Heads] += v
	}
}

// row adds the gradients of row i of a span.
func (op *entriesGrad) row(memory []float32, span, i int) {
	s, heads, dim := &op.spans[span], op.a.Heads, op.a.Dim
	seen := op.seen.seen(s.First+i, s.Start+i)
	n, scratch := seen.count, cutter(memory)
	keys, dkeys := scratch.take(n*dim), scratch.take(n*dim)
	scores, grads := mat.Floats{V: scratch.take(heads * n), Stride: n}, mat.Floats{V: scratch.take(heads * n), Stride: n}
	dq := mat.Floats{V: scratch.take(heads * dim), Stride: dim}
	op.seen.gather(keys, s, &seen, 0, n, scratch)
	q, dy := mat.Floats{V: row(op.q, s.First+i, heads*dim), Stride: dim}, mat.Floats{V: row(op.dy, s.First+i, heads*dim), Stride: dim}
	op.set.GEMV.Mul(&gemv.Product{Y: scores, W: weightsOf(keys, dim), X: q, Rows: n, Tokens: heads, N: dim})
	op.set.GEMV.Mul(&gemv.Product{Y: grads, W: weightsOf(keys, dim), X: dy, Rows: n, Tokens: heads, N: dim})
	for h := range heads {
		op.query(row(scores, h, n), row(grads, h, n), 0, n, s.First+i, h, span)
	}
	clear(dq.V)
	op.set.GEMV.Mix(&gemv.RowSum{Y: dq, P: grads, Step: 1, V: weightsOf(keys, dim), Keys: n, Tokens: heads, Cols: dim})
	op.set.Vector.AddScaled(row(op.dq, s.First+i, heads*dim), dq.V, 1)
	clear(dkeys)
	for _, x := range [...]struct{ weights, rows mat.Floats }{{grads, q}, {scores, dy}} {
		op.set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: dkeys, Stride: dim}, P: mat.Floats{V: x.weights.V, Stride: 1}, Step: n, V: weightsOf(x.rows.V, dim), Keys: heads, Tokens: n, Cols: dim})
	}
	for j := range n {
		to, position := op.dk, seen.first+j
		if j >= seen.window {
			to, position = op.dv, op.seen.entries.at(seen.entry(j-seen.window))
		}
		data := to.data[int(s.Pages[position/to.tokens])*to.page+position%to.tokens*to.row:]
		op.set.Vector.AddScaled(tensor.Tensor{Data: data[:4*dim]}.F32(), dkeys[j*dim:][:dim], 1)
	}
}
