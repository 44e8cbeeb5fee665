package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Indexed = (*Backend)(nil)

// sparseRows are the rows of an operation that see more positions than are chosen. A row is at a
// position and has the pages of its sequence.
type sparseRows struct {
	dense []backend.Span // the other rows
	spans []backend.Span
	rows  int
}

// split divides spans at the position from which on rows see more than count positions.
func (r *sparseRows) split(spans []backend.Span, count int) {
	r.dense, r.spans, r.rows = r.dense[:0], r.spans[:0], 0
	for _, s := range spans {
		if n := min(s.Rows, max(0, count-s.Start)); n > 0 {
			part := s
			part.Rows = n
			r.dense = append(r.dense, part)
			s.First, s.Rows, s.Start = s.First+n, s.Rows-n, s.Start+n
		}
		if s.Rows > 0 {
			r.spans = append(r.spans, s)
			r.rows += s.Rows
		}
	}
}

// at returns the span of a row and the row's index in it. Late rows see more keys and go first.
func (r *sparseRows) at(i int) (*backend.Span, int) {
	return rowOf(r.spans, r.rows-1-i)
}

// choose is one call of Choose. Its places are blocks of keyBlock positions.
type choose struct {
	scoring
	set                *kernels.Set
	chosen, q, weights mat.Floats
	keys               pages
	a                  backend.IndexArgs
	longest            int
}

// Choose implements [backend.Indexed].
func (b *Backend) Choose(chosen, q, weights tensor.Tensor, keys backend.KV, spans []backend.Span, a backend.IndexArgs) {
	if b.failed.Load() {
		return
	}
	if a.Heads < 1 || a.Dim < 1 || a.Count < 1 {
		b.fail("indexer: invalid arguments: %+v", a)
		return
	}
	n := q.Rows()
	op := choose{scoring: scoring{rows: &b.sparse}, set: b.set, a: a}
	var ok, ok2, ok3, ok4 bool
	op.chosen, ok = b.floats("indexer", "choice", chosen, n, a.Count)
	op.q, ok2 = b.floats("indexer", "queries", q, n, a.Heads*a.Dim)
	op.weights, ok3 = b.floats("indexer", "weights", weights, n, a.Heads)
	op.keys, ok4 = b.pages("keys of the indexer", &keys, keys.K, 1, a.Dim)
	if !ok || !ok2 || !ok3 || !ok4 {
		return
	}
	op.longest, _, ok = b.checkSpans(spans, n, op.keys.count, keys.PageTokens)
	if !ok {
		return
	}
	b.sparse.split(spans, a.Count)
	if b.sparse.rows == 0 || !b.reserve(op.longest+keyBlock*(a.Dim+a.Heads)+op.keys.widened()) {
		return
	}
	b.choose = op
	b.choose.runAll(b, &b.choose, ceil(op.longest, keyBlock), op.longest*a.Heads*max(1, a.Dim/8), op.longest)
}

func (op *choose) run(w *worker, unit int) {
	s, i, scores, block := op.unit(w, unit)
	seen, row, from, scratch := s.Start+i+1, s.First+i, block*keyBlock, w.scratch.v[op.longest:]
	switch op.step {
	case chooseRow:
		op.score(scores[:seen], scratch, s, row, 0)
	case choosePart:
		if to := min(seen, from+op.each*keyBlock); from < to {
			op.score(scores[from:to], scratch, s, row, from)
		}
		return
	}
	op.chooseAmong(scores[:seen], row)
}

func (op *choose) chooseAmong(scores []float32, r int) {
	chooseHighest(row(op.chosen, r, op.a.Count), scores)
}

// score computes the scores of the positions from first on that row r sees.
func (op *choose) score(scores, scratch []float32, s *backend.Span, r, first int) {
	heads, dim := op.a.Heads, op.a.Dim
	columns, scratch := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	wide := scratch[keyBlock*heads:]
	indexed := indexedRow{set: op.set, a: &op.a, q: mat.Floats{V: row(op.q, r, heads*dim), Stride: dim}, weights: row(op.weights, r, heads),
		products: mat.Floats{V: scratch[:keyBlock*heads], Stride: keyBlock}}
	for len(scores) > 0 {
		sums := scores[:min(keyBlock, len(scores))]
		scores = scores[len(sums):]
		op.keys.each(s.Pages, first, first+len(sums), func(position, n int, k []byte) {
			op.set.Vector.Transpose(mat.Floats{V: columns[position-first:], Stride: keyBlock}, op.keys.headRows(op.set, k, 0, n, wide), n, dim)
		})
		first += len(sums)
		indexed.score(sums, columns)
	}
}

// chooseHighest sets chosen to the indices of the len(chosen) highest scores, in ascending order.
// There are more scores than that. Of equal scores it chooses the first.
func chooseHighest(chosen, scores []float32) {
	lowest, equal := limit(scores, len(chosen))
	n := 0
	for i, x := range scores {
		switch k := ordered(x); {
		case k < lowest:
			continue
		case k == lowest:
			if equal == 0 {
				continue
			}
			equal--
		}
		chosen[n] = math.Float32frombits(uint32(i))
		n++
	}
}

// limit returns the lowest of the count highest scores, as mapped by ordered, and how many scores
// equal to it are among them. It finds the score byte by byte, from the highest byte on.
func limit(scores []float32, count int) (lowest uint32, equal int) {
	for shift := 24; shift >= 0; shift -= 8 {
		var have [256]int
		above := uint64(lowest) >> (shift + 8)
		for _, x := range scores {
			if k := ordered(x); uint64(k)>>(shift+8) == above {
				have[k>>shift&0xff]++
			}
		}
		digit := 255
		for ; digit > 0 && have[digit] < count; digit-- {
			count -= have[digit]
		}
		lowest |= uint32(digit) << shift
	}
	return lowest, count
}

// ordered maps numbers to integers in the same order. Both zeros are equal, and NaN is the
// highest.
func ordered(x float32) uint32 {
	if x != x {
		return math.MaxUint32
	}
	k := math.Float32bits(x + 0)
	if k>>31 != 0 {
		return ^k
	}
	return k | 1<<31
}

// attentionChosen computes the rows of AttentionChosen that see a choice of positions. A unit is
// a row with some of the query heads.
type attentionChosen struct {
	attentionOp
	chosen mat.Floats
	count  int
	rows   *sparseRows
	parts  int // of the query heads
}

// AttentionChosen implements [backend.Indexed].
func (b *Backend) AttentionChosen(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs) {
	if b.failed.Load() {
		return
	}
	n := q.Rows()
	if a.Heads < 1 || a.KVHeads != 1 || a.Dim < 1 || a.ValueDim < 1 || a.Window != 0 || a.Chunk != 0 || a.Softcap != 0 || len(a.Slopes) > 0 || !a.Relative.States.IsZero() {
		b.fail("attention to chosen positions: invalid arguments: %+v", a)
		return
	}
	op := attentionChosen{rows: &b.sparse, count: chosen.Cols()}
	var ok, ok2, ok3, ok4, ok5, ok6 bool
	op.set, op.a, op.group = b.set, a, a.Heads
	op.sinks, ok6 = b.vector("attention", "sinks", a.Sinks, slotSinks, a.Heads)
	op.q, ok = b.floats("attention", "query", q, n, a.Heads*a.Dim)
	op.dst, ok2 = b.floats("attention", "result", dst, n, a.Heads*a.ValueDim)
	op.chosen, ok3 = b.floats("attention", "choice", chosen, n, op.count)
	op.k, ok4 = b.pages("keys", &kv, kv.K, 1, a.Dim)
	op.v, ok5 = b.pages("values", &kv, kv.V, 1, a.ValueDim)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 {
		return
	}
	if _, _, ok = b.checkSpans(spans, n, min(op.k.count, op.v.count), kv.PageTokens); !ok {
		return
	}
	b.sparse.split(spans, op.count)
	if len(b.sparse.dense) > 0 {
		b.Attention(dst, q, kv, b.sparse.dense, a)
	}
	if b.sparse.rows == 0 {
		return
	}
	op.parts = min(a.Heads, ceil(2*len(b.pool.workers), b.sparse.rows))
	if !b.reserve(op.scratch()) {
		return
	}
	b.chosen = op
	b.run(&b.chosen, b.sparse.rows*op.parts, b.sparse.rows*op.count*a.Heads*max(1, a.Dim/8))
}

func (op *attentionChosen) scratch() int {
	return op.gatheredScratch(ceil(op.a.Heads, op.parts), op.count, max(op.k.widened(), op.v.widened()))
}

func (op *attentionChosen) run(w *worker, unit int) {
	head, heads := op.partOfHeads(unit%op.parts, op.parts)
	if heads <= 0 {
		return
	}
	s, i := op.rows.at(unit / op.parts)
	chosen := row(op.chosen, s.First+i, op.count)
	op.attendGathered(gatheredRow{row: s.First + i, head: head, heads: heads, count: op.count, most: op.count,
		gather: func(rows []float32, base, n int, values bool, wide []float32) {
			op.gather(rows, s.Pages, chosen[base:][:n], values, wide)
		}}, w.scratch.v)
}

// gather copies the keys or values at positions to rows.
func (op *attentionChosen) gather(rows []float32, table []int32, positions []float32, values bool, wide []float32) {
	from := pageRows{set: op.set, pages: op.k, dim: op.a.Dim}
	if values {
		from.pages, from.dim = op.v, op.a.ValueDim
	}
	for i, bits := range positions {
		from.copyTo(rows[i*from.dim:], table, int(math.Float32bits(bits)), wide)
	}
}
