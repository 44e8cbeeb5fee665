package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

// rowOf returns the span of row i of an operation on spans, and the row's index in it.
func rowOf(spans []backend.Span, i int) (*backend.Span, int) {
	for j := range spans {
		if s := &spans[j]; i < s.Rows {
			return s, i
		} else {
			i -= s.Rows
		}
	}
	return nil, 0
}

// entryKeys are the compressed keys (entries) in the pages of a layer, one for every rate
// positions.
type entryKeys struct {
	pageRows
	rate int
}

// at returns the position of entry i.
func (k *entryKeys) at(i int) int { return (i+1)*k.rate - 1 }

// chooseEntries is one call of ChooseEntries. A unit is a row.
type chooseEntries struct {
	chosen, q, weights mat.Floats
	keys               entryKeys
	spans              []backend.Span
	a                  backend.IndexArgs
	longest            int // most entries that a row sees
}

// ChooseEntries implements [backend.Compressed].
func (b *Backend) ChooseEntries(chosen, q, weights tensor.Tensor, keys backend.KV, spans []backend.Span, a backend.IndexArgs, e backend.EntryArgs) {
	if b.failed.Load() {
		return
	}
	if a.Heads < 1 || a.Dim < 1 || a.Count < 1 || e.Rate < 1 || e.First < 0 || e.Extra != a.Dim {
		b.fail("indexer of entries: invalid arguments: %+v %+v", a, e)
		return
	}
	n := q.Rows()
	op := chooseEntries{spans: spans, a: a, keys: entryKeys{pageRows{set: b.set, first: e.First, dim: a.Dim}, e.Rate}}
	var ok, ok2, ok3, ok4 bool
	op.chosen, ok = b.floats("indexer", "choice", chosen, n, a.Count)
	op.q, ok2 = b.floats("indexer", "queries", q, n, a.Heads*a.Dim)
	op.weights, ok3 = b.floats("indexer", "weights", weights, n, a.Heads)
	op.keys.pages, ok4 = b.pages("keys of the indexer", &keys, keys.V, 1, e.First+e.Extra)
	if !ok || !ok2 || !ok3 || !ok4 {
		return
	}
	longest, rows, ok := b.checkSpans(spans, n, op.keys.pages.count, keys.PageTokens)
	op.longest = longest / e.Rate
	if !ok || op.longest <= a.Count || !b.reserve(op.longest+keyBlock*(2*a.Dim+a.Heads)+op.keys.pages.widened()) {
		return
	}
	b.chooseEntries = op
	b.run(&b.chooseEntries, rows, rows*op.longest*a.Heads*max(1, a.Dim/8))
}

func (op *chooseEntries) run(w *worker, unit int) {
	s, i := rowOf(op.spans, unit)
	seen := (s.Start + i + 1) / op.keys.rate
	if seen <= op.a.Count {
		return
	}
	heads, dim := op.a.Heads, op.a.Dim
	r := indexedRow{set: op.keys.set, a: &op.a, q: mat.Floats{V: row(op.q, s.First+i, heads*dim), Stride: dim}, weights: row(op.weights, s.First+i, heads)}
	scores, scratch := w.scratch.v[:seen], w.scratch.v[op.longest:]
	keys, scratch := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	columns, scratch := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	wide := scratch[keyBlock*heads:]
	r.products = mat.Floats{V: scratch[:keyBlock*heads], Stride: keyBlock}
	for base := 0; base < seen; base += keyBlock {
		sums := scores[base:min(base+keyBlock, seen)]
		for j := range sums {
			op.keys.copyTo(keys[j*dim:], s.Pages, op.keys.at(base+j), wide)
		}
		op.keys.set.Vector.Transpose(mat.Floats{V: columns, Stride: keyBlock}, weightsOf(keys, dim), len(sums), dim)
		r.score(sums, columns)
	}
	chooseHighest(row(op.chosen, s.First+i, op.a.Count), scores)
}

// attentionEntries is one call of AttentionEntries. A unit is a row with some of the query heads.
// It sums the keys of the window first, in ascending position, and then the entries.
type attentionEntries struct {
	attentionOp
	entries entryKeys
	chosen  mat.Floats
	count   int // columns of chosen
	rows    int // of all spans
	most    int // keys that a row sees
	parts   int // of the query heads
}

// AttentionEntries implements [backend.Compressed].
func (b *Backend) AttentionEntries(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, e backend.EntryArgs) {
	if b.failed.Load() {
		return
	}
	op, ok := b.entriesOf(q, chosen, kv, spans, a, e)
	if !ok {
		return
	}
	if op.dst, ok = b.floats("attention", "result", dst, q.Rows(), a.Heads*a.Dim); !ok {
		return
	}
	op.parts = min(a.Heads, ceil(2*len(b.pool.workers), max(op.rows, 1)))
	if !b.reserve(op.scratch()) {
		return
	}
	b.toEntries = op
	b.run(&b.toEntries, op.rows*op.parts, op.rows*op.most*a.Heads*max(1, a.Dim/8))
}

// entriesOf checks the operands of attention over entries.
func (b *Backend) entriesOf(q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, e backend.EntryArgs) (op attentionEntries, ok bool) {
	n := q.Rows()
	if a.Heads < 1 || a.KVHeads != 1 || a.Dim < 1 || a.ValueDim != a.Dim || a.Window < 1 || a.Chunk != 0 || a.Softcap != 0 || e.Rate < 1 || e.First != a.Dim || e.Extra < 0 {
		b.fail("attention to entries: invalid arguments: %+v %+v", a, e)
		return op, false
	}
	op = attentionEntries{entries: entryKeys{pageRows{set: b.set, dim: a.Dim}, e.Rate}}
	var ok2, ok3, ok4 bool
	op.set, op.a, op.spans = b.set, a, spans
	op.q, ok = b.floats("attention", "query", q, n, a.Heads*a.Dim)
	op.k, ok2 = b.pages("keys", &kv, kv.K, 1, a.Dim)
	op.entries.pages, ok3 = b.pages("entries", &kv, kv.V, 1, e.First+e.Extra)
	op.sinks, ok4 = b.vector("attention", "sinks", a.Sinks, slotSinks, a.Heads)
	if !ok || !ok2 || !ok3 || !ok4 {
		return op, false
	}
	if !chosen.IsZero() {
		op.count = chosen.Cols()
		if op.chosen, ok = b.floats("attention", "choice", chosen, n, op.count); !ok {
			return op, false
		}
	}
	longest, rows, ok := b.checkSpans(spans, n, min(op.k.count, op.entries.pages.count), kv.PageTokens)
	op.rows, op.most = rows, longest/e.Rate
	if op.count > 0 {
		op.most = min(op.most, op.count)
	}
	op.most += min(a.Window, longest)
	return op, ok
}

func (op *attentionEntries) scratch() int {
	return op.gatheredScratch(ceil(op.a.Heads, op.parts), op.most, max(op.k.widened(), op.entries.pages.widened()))
}

func (op *attentionEntries) run(w *worker, unit int) {
	head, heads := op.partOfHeads(unit%op.parts, op.parts)
	if heads <= 0 {
		return
	}
	s, i := rowOf(op.spans, unit/op.parts)
	seen := op.seen(s.First+i, s.Start+i)
	op.attendGathered(gatheredRow{row: s.First + i, head: head, heads: heads, count: seen.count, most: op.most,
		gather: func(rows []float32, base, n int, _ bool, wide []float32) { op.gather(rows, s, &seen, base, n, wide) }}, w.scratch.v)
}

// seenKeys describes the keys that a row sees: positions [first, first+window), then entries.
type seenKeys struct {
	first, window, count int
	chosen               []float32 // nil for all entries from the first on
}

// seen returns the keys that row r at a position sees.
func (op *attentionEntries) seen(r, position int) seenKeys {
	k := seenKeys{first: max(0, position+1-op.a.Window)}
	k.window = position + 1 - k.first
	entries := (position + 1) / op.entries.rate
	if op.count > 0 && entries > op.count {
		k.chosen = row(op.chosen, r, op.count)
		entries = op.count
	}
	k.count = k.window + entries
	return k
}

// entry returns the index of the i-th entry that the row sees.
func (k *seenKeys) entry(i int) int {
	if k.chosen != nil {
		return int(math.Float32bits(k.chosen[i]))
	}
	return i
}

// gather copies n keys from base on to rows.
func (op *attentionEntries) gather(rows []float32, s *backend.Span, seen *seenKeys, base, n int, wide []float32) {
	window := pageRows{set: op.set, pages: op.k, dim: op.a.Dim}
	for j := range n {
		dst := rows[j*op.a.Dim:]
		if i := base + j - seen.window; i < 0 {
			window.copyTo(dst, s.Pages, seen.first+base+j, wide)
		} else {
			op.entries.copyTo(dst, s.Pages, op.entries.at(seen.entry(i)), wide)
		}
	}
}
