package cpu

import (
	"math"
	"slices"

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

// PoolGrad recomputes the softmax.
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

// entry adds the gradients of channels [begin, end) of the entry that ends at a position. The
// sequence begins at row start.
func (op *poolGrad) entry(start, position, begin, end int) {
	first, width := op.first(position), op.series*op.a.Dim
	weights := make([]float64, position+1-first)
	dy := row(op.dy, start+position, op.a.Dim)
	for c := begin; c < end; c++ {
		// at returns a token's row, the index of its value there, and that of its bias. Its gate
		// is width elements after the value.
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

// entriesGrad is a backward operation of AttentionEntries. Rows add to the gradients of the same
// keys in order. If there is a sequence for each thread, a unit is a sequence. Otherwise the
// threads share some rows at a time: first the weights of their queries, one row per unit, then
// the gradients of keys and entries, some columns per unit.
type entriesGrad struct {
	attentionGrad // but for values, which are keys
	seen          attentionEntries
}

// entriesRow is a row of a span, with memory for the weights of its queries and the place of its
// sinks' gradients.
type entriesRow struct {
	span, i int
	weights []float32
	sinks   int
}

// The number of rows at a time for each thread, and the number that divides the columns of a
// unit. Neither changes results.
const (
	entriesRows    = 8
	entriesColumns = 64
)

// attentionEntriesGrad recomputes the scores of each row.
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
	wide := max(op.k.widened(), op.seen.entries.pages.widened())
	if !b.reserve(op.seen.most*a.Dim + a.Heads*a.Dim + wide + op.pitch()) {
		return
	}
	sinks := make([]float32, len(spans)*a.Heads)
	if len(spans) >= len(b.pool.workers) {
		if into != nil {
			op.dsinks = sinks
		}
		b.run(taskFunc(func(w *worker, unit int) { op.sequence(w.scratch.v, unit) }), len(spans), n*op.work())
	} else if err := b.shareEntries(&op, into != nil, sinks); err != nil {
		b.fail("%s: %w", name, err)
		return
	}
	for i := range into {
		for span := range spans {
			into[i] += sinks[span*a.Heads+i]
		}
	}
}

// sequence computes the rows of a span.
func (op *entriesGrad) sequence(memory []float32, span int) {
	scratch := cutter(memory)
	weights := scratch.take(op.pitch())
	for i := range op.spans[span].Rows {
		at := entriesRow{span, i, weights, span}
		op.query(scratch, at)
		op.keys(scratch, at, 0, op.a.Dim)
	}
}

// shareEntries runs op with all threads on some rows at a time.
func (b *Backend) shareEntries(op *entriesGrad, withSinks bool, sinks []float32) error {
	var all []entriesRow
	for span := range op.spans {
		for i := range op.spans[span].Rows {
			all = append(all, entriesRow{span: span, i: i})
		}
	}
	threads := len(b.pool.workers)
	most := min(entriesRows*threads, len(all))
	if err := b.input.grow(b.ledger, most*op.pitch()); err != nil {
		return err
	}
	if withSinks {
		op.dsinks = make([]float32, most*op.a.Heads)
	}
	columns := entriesColumns * ceil(op.a.Dim, entriesColumns*threads)
	for rows := range slices.Chunk(all, max(most, 1)) {
		for slot := range rows {
			rows[slot].weights, rows[slot].sinks = b.input.v[slot*op.pitch():], slot
		}
		clear(op.dsinks)
		b.run(taskFunc(func(w *worker, unit int) { op.query(w.scratch.v, rows[unit]) }), len(rows), len(rows)*op.work())
		b.run(taskFunc(func(w *worker, unit int) {
			for _, at := range rows {
				op.keys(w.scratch.v, at, unit*columns, min(columns, op.a.Dim-unit*columns))
			}
		}), ceil(op.a.Dim, columns), len(rows)*op.work())
		if !withSinks {
			continue
		}
		for slot, at := range rows {
			for h := range op.a.Heads {
				sinks[at.span*op.a.Heads+h] += op.dsinks[slot*op.a.Heads+h]
			}
		}
	}
	return nil
}

// work returns the cost of a row.
func (op *entriesGrad) work() int { return op.seen.most * op.a.Heads * op.a.Dim }

// pitch returns the number of weights of a row, with their gradients.
func (op *entriesGrad) pitch() int { return 2 * op.a.Heads * op.seen.most }

// matrices returns the weights of the queries of a row that sees n keys, and their gradients.
func (op *entriesGrad) matrices(at entriesRow, n int) (scores, grads mat.Floats) {
	scratch := cutter(at.weights)
	return mat.Floats{V: scratch.take(op.a.Heads * n), Stride: n}, mat.Floats{V: scratch.take(op.a.Heads * n), Stride: n}
}

// operands returns the queries of a row, and the gradients of its results.
func (op *entriesGrad) operands(r int) (q, dy mat.Floats) {
	heads, dim := op.a.Heads, op.a.Dim
	return mat.Floats{V: row(op.q, r, heads*dim), Stride: dim}, mat.Floats{V: row(op.dy, r, heads*dim), Stride: dim}
}

// query computes the weights of the queries of a row, their gradients, and those of the queries.
func (op *entriesGrad) query(memory []float32, at entriesRow) {
	s, heads, dim := &op.spans[at.span], op.a.Heads, op.a.Dim
	r := s.First + at.i
	seen := op.seen.seen(r, s.Start+at.i)
	n, scratch := seen.count, cutter(memory)
	keys, dq := scratch.take(n*dim), mat.Floats{V: scratch.take(heads * dim), Stride: dim}
	scores, grads := op.matrices(at, n)
	op.seen.gather(keys, s, &seen, 0, n, scratch)
	q, dy := op.operands(r)
	op.set.GEMV.Mul(&gemv.Product{Y: scores, W: weightsOf(keys, dim), X: q, Rows: n, Tokens: heads, N: dim})
	op.set.GEMV.Mul(&gemv.Product{Y: grads, W: weightsOf(keys, dim), X: dy, Rows: n, Tokens: heads, N: dim})
	for h := range heads {
		op.attentionGrad.query(row(scores, h, n), row(grads, h, n), 0, n, r, h, at.sinks)
	}
	clear(dq.V)
	op.set.GEMV.Mix(&gemv.RowSum{Y: dq, P: grads, Step: 1, V: weightsOf(keys, dim), Keys: n, Tokens: heads, Cols: dim})
	op.set.Vector.AddScaled(row(op.dq, r, heads*dim), dq.V, 1)
}

// keys adds some columns of the gradients of the keys and entries that a row sees.
func (op *entriesGrad) keys(memory []float32, at entriesRow, first, cols int) {
	s, dim := &op.spans[at.span], op.a.Dim
	seen := op.seen.seen(s.First+at.i, s.Start+at.i)
	n, scratch := seen.count, cutter(memory)
	dkeys := scratch.take(n * cols)
	scores, grads := op.matrices(at, n)
	q, dy := op.operands(s.First + at.i)
	clear(dkeys)
	for _, x := range [...]struct{ weights, rows mat.Floats }{{grads, q}, {scores, dy}} {
		op.set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: dkeys, Stride: cols}, P: mat.Floats{V: x.weights.V, Stride: 1}, Step: n, V: weightsOf(x.rows.V[first:], dim), Keys: op.a.Heads, Tokens: n, Cols: cols})
	}
	for j := range n {
		to, position := op.dk, seen.first+j
		if j >= seen.window {
			to, position = op.dv, op.seen.entries.at(seen.entry(j-seen.window))
		}
		data := to.data[int(s.Pages[position/to.tokens])*to.page+position%to.tokens*to.row+4*first:]
		op.set.Vector.AddScaled(tensor.Tensor{Data: data[:4*cols]}.F32(), dkeys[j*cols:][:cols], 1)
	}
}
