package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

const (
	tileRows   = 48      // queries (tokens times heads of a group) that pass the keys together
	tileScores = 1 << 18 // floats of scores a tile may have where it holds several tokens
	keyBlock   = 64      // keys that are turned into columns at a time
)

// attention is one call. A unit is a tile: some tokens of one span with some or all of
// the query heads of one key/value head.
type attention struct {
	set    *kernels.Set
	dst, q kernels.Floats
	k, v   pages
	spans  []backend.Span
	sinks  []float32
	a      backend.AttentionArgs
	group  int // query heads of a key/value head
	heads  int // of a tile
	tokens int // of a tile
	pitch  int // of a row of scores
}

// pages are the keys or the values of one layer.
type pages struct {
	data   []byte
	format kernels.Format
	tokens int // of a page
	page   int // bytes from a page to the next
	row    int // bytes from a token to the next
	head   int // bytes from a head to the next
	count  int
}

// Attention computes, for each query by itself, all scores of its visible keys, then
// their softmax, then the sum of the values in ascending position. What a query gets
// depends on its own visible keys alone.
func (b *Backend) Attention(dst, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs) {
	if b.failed.Load() {
		return
	}
	n := q.Rows()
	if a.Heads <= 0 || a.KVHeads <= 0 || a.Heads%a.KVHeads != 0 || a.Dim <= 0 || a.ValueDim <= 0 {
		b.fail("attention: %d heads over %d key/value heads of dimension %d and %d", a.Heads, a.KVHeads, a.Dim, a.ValueDim)
		return
	}
	query, ok1 := b.floats("attention", "query", q, n, a.Heads*a.Dim)
	out, ok2 := b.floats("attention", "result", dst, n, a.Heads*a.ValueDim)
	keys, ok3 := b.pages("keys", kv.K, kv.PageTokens, a.KVHeads, a.Dim)
	values, ok4 := b.pages("values", kv.V, kv.PageTokens, a.KVHeads, a.ValueDim)
	sinks, ok5 := b.vector("attention", "sinks", a.Sinks, slotSinks, a.Heads)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return
	}
	longest, rows, ok := b.checkSpans(spans, n, min(keys.count, values.count), kv.PageTokens)
	if !ok {
		return
	}
	b.attention = attention{set: b.set, dst: out, q: query, k: keys, v: values, spans: spans, sinks: sinks, a: a}
	op := &b.attention
	op.pitch = longest
	op.plan(len(b.pool.workers))
	if !b.reserve(op.tokens*op.heads*(op.pitch+a.Dim+a.ValueDim+1) + keyBlock*a.Dim) {
		return
	}
	b.run(op, op.units(), rows*longest*a.Heads)
}

// pages checks the keys or values of a layer.
func (b *Backend) pages(name string, t tensor.Tensor, tokens, heads, dim int) (pages, bool) {
	f, ok := format(t.DType)
	if !ok || t.Rank != 3 || t.Dims[1] != tokens || tokens <= 0 || t.Dims[2]%heads != 0 || t.Dims[2]/heads < dim {
		b.fail("attention: %s are %v %v with pages of %d tokens and %d heads of %d", name, t.DType, t.Shape(), tokens, heads, dim)
		return pages{}, false
	}
	return pages{
		data: t.Data, format: f, tokens: tokens, count: t.Dims[0],
		page: t.RowStride() * f.Size(), row: t.Dims[2] * f.Size(), head: t.Dims[2] / heads * f.Size(),
	}, true
}

// checkSpans returns the most keys that one query may see and the number of rows.
func (b *Backend) checkSpans(spans []backend.Span, n, pages, pageTokens int) (longest, rows int, ok bool) {
	for i := range spans {
		s := &spans[i]
		end := s.Start + s.Rows
		if s.First < 0 || s.Rows < 0 || s.Start < 0 || s.First+s.Rows > n || end > len(s.Pages)*pageTokens {
			b.fail("attention: span %d has rows %d+%d of %d at position %d with %d pages", i, s.First, s.Rows, n, s.Start, len(s.Pages))
			return 0, 0, false
		}
		for _, p := range s.Pages[:ceil(end, pageTokens)] {
			if p < 0 || int(p) >= pages {
				b.fail("attention: span %d names page %d of %d", i, p, pages)
				return 0, 0, false
			}
		}
		longest, rows = max(longest, end), rows+s.Rows
	}
	return longest, rows, true
}

// plan sizes the tiles: as many rows as pass the keys well together, but no fewer tiles
// than keep the threads busy where heads can be split.
func (op *attention) plan(threads int) {
	op.group = op.a.Heads / op.a.KVHeads
	op.heads = min(op.group, tileRows)
	op.tokens = max(1, min(tileRows, tileScores/max(op.pitch, 1))/op.heads)
	for op.heads > 1 && op.units() < 2*threads {
		op.heads = ceil(op.heads, 2)
	}
}

func (op *attention) units() int {
	n := 0
	for i := range op.spans {
		n += ceil(op.spans[i].Rows, op.tokens)
	}
	return n * op.a.KVHeads * ceil(op.group, op.heads)
}

func (op *attention) run(w *worker, unit int) {
	parts := ceil(op.group, op.heads)
	part, unit := unit%parts, unit/parts
	kvHead, tile := unit%op.a.KVHeads, unit/op.a.KVHeads
	for i := range op.spans {
		s := &op.spans[i]
		tiles := ceil(s.Rows, op.tokens)
		if tile >= tiles {
			tile -= tiles
			continue
		}
		// Late tiles see more keys and go first, so that the threads end together.
		first := (tiles - 1 - tile) * op.tokens
		t := tileOf{span: s, kvHead: kvHead, first: first, tokens: min(op.tokens, s.Rows-first)}
		t.head = kvHead*op.group + part*op.heads
		t.heads = min(op.heads, op.group-part*op.heads)
		op.tile(w.scratch.v, &t)
		return
	}
}

// tileOf is tokens rows of a span from first on, for heads query heads from head on,
// which share a key/value head.
type tileOf struct {
	span          *backend.Span
	kvHead        int
	head, heads   int
	first, tokens int
}

// visible is the range of positions that row i of s sees.
func (op *attention) visible(s *backend.Span, i int) (lo, hi int) {
	hi = s.Start + i + 1
	if op.a.Window > 0 {
		lo = max(0, hi-op.a.Window)
	}
	return lo, hi
}

// tile computes the rows of one tile, token by token and head by head.
func (op *attention) tile(scratch []float32, t *tileOf) {
	dim, width, s := op.a.Dim, op.a.ValueDim, t.span
	m := t.tokens * t.heads
	q, scratch := scratch[:m*dim], scratch[m*dim:]
	sum, scratch := scratch[:m*width], scratch[m*width:]
	inverse, scratch := scratch[:m], scratch[m:]
	block, scratch := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	for i := range t.tokens {
		copy(q[i*t.heads*dim:][:t.heads*dim], op.q.V[(s.First+t.first+i)*op.q.Stride+t.head*dim:])
	}
	lo, _ := op.visible(s, t.first)
	_, hi := op.visible(s, t.first+t.tokens-1)
	scores := kernels.Floats{V: scratch[:m*op.pitch], Stride: op.pitch}
	op.score(scores, kernels.Floats{V: q, Stride: dim}, block, t, lo, hi)
	for i := range m {
		own, end := op.visible(s, t.first+i/t.heads)
		inverse[i] = op.exponentials(row(scores, i, op.pitch)[own-lo:end-lo], t.head+i%t.heads)
	}
	clear(sum)
	op.weigh(kernels.Floats{V: sum, Stride: width}, scores, t, lo)
	for i := range m {
		op.set.ScaleMax(sum[i*width:][:width], inverse[i])
	}
	for i := range t.tokens {
		to := op.dst.V[(s.First+t.first+i)*op.dst.Stride+t.head*width:]
		copy(to[:t.heads*width], sum[i*t.heads*width:])
	}
}

// score sets the products of a tile's queries with the keys of [lo, hi), each of which adds
// up in ascending order of the channels. Keys are turned into columns, so that a vector has
// the products of as many keys; the queries share what that costs.
func (op *attention) score(scores, q kernels.Floats, block []float32, t *tileOf, lo, hi int) {
	m, dim := t.tokens*t.heads, op.a.Dim
	for i := range m {
		clear(row(scores, i, hi-lo))
	}
	for base := lo; base < hi; base += keyBlock {
		end := min(base+keyBlock, hi)
		op.k.each(t.span.Pages, base, end, func(position, n int, k []byte) {
			op.set.Columns(kernels.Floats{V: block[position-base:], Stride: keyBlock}, op.k.headOf(k, t.kvHead), n, dim)
		})
		op.set.Mix(from(scores, 0, base-lo), q, 1, weightsOf(block, keyBlock), dim, m, end-base)
	}
}

// weigh sums the values of a tile, whose scores begin at position base. Positions that
// all tokens see are summed together, those before and after for each token by itself:
// for each token in ascending order.
func (op *attention) weigh(sum, scores kernels.Floats, t *tileOf, base int) {
	commonLo, _ := op.visible(t.span, t.first+t.tokens-1)
	_, commonHi := op.visible(t.span, t.first)
	commonLo = min(commonLo, commonHi)
	part := func(lo, hi, token, count int) {
		op.v.each(t.span.Pages, lo, hi, func(position, n int, v []byte) {
			at := token * t.heads
			op.set.Mix(from(sum, at, 0), from(scores, at, position-base), 1, op.v.headOf(v, t.kvHead), n, count*t.heads, op.a.ValueDim)
		})
	}
	for i := range t.tokens {
		lo, hi := op.visible(t.span, t.first+i)
		part(lo, min(hi, commonLo), i, 1)
	}
	part(commonLo, commonHi, 0, t.tokens)
	for i := range t.tokens {
		lo, hi := op.visible(t.span, t.first+i)
		part(max(lo, commonHi), hi, i, 1)
	}
}

// softmax turns the scores of one query into weights.
func (op *attention) softmax(x []float32, head int) {
	inverse := op.exponentials(x, head)
	op.set.ScaleMax(x, inverse)
}

// exponentials turns the scores of one query into weights that are not divided by their
// sum, and returns its inverse.
func (op *attention) exponentials(x []float32, head int) (inverse float32) {
	var top float32
	if softcap := op.a.Softcap; softcap > 0 {
		op.set.Tanh(x, op.a.Scale/softcap, softcap)
		top = op.set.ScaleMax(x, 1)
	} else {
		top = op.set.ScaleMax(x, op.a.Scale)
	}
	var sink float32
	if op.sinks != nil {
		top = max(top, op.sinks[head])
		sink = float32(math.Exp(float64(op.sinks[head] - top)))
	}
	return 1 / (op.set.ExpSum(x, top) + sink)
}

// each calls f for every run of positions in [lo, hi) that one page holds, with the bytes
// from the first one on.
func (p *pages) each(table []int32, lo, hi int, f func(position, n int, data []byte)) {
	for lo < hi {
		offset := lo % p.tokens
		n := min(p.tokens-offset, hi-lo)
		f(lo, n, p.data[int(table[lo/p.tokens])*p.page+offset*p.row:])
		lo += n
	}
}

type storeKV struct {
	set   *kernels.Set
	kv    backend.KV
	k, v  kernels.Floats
	slots []int32
}

// StoreKV rounds to the dtype of kv. An absent v leaves the values alone, for a kv
// whose values are a view of its keys.
func (b *Backend) StoreKV(kv backend.KV, k, v tensor.Tensor, slots []int32) {
	if b.failed.Load() {
		return
	}
	keys, ok := b.storable("keys", kv.K, k, kv.PageTokens, slots)
	if !ok {
		return
	}
	var values kernels.Floats
	if !v.IsZero() {
		if values, ok = b.storable("values", kv.V, v, kv.PageTokens, slots); !ok {
			return
		}
	}
	b.store = storeKV{set: b.set, kv: kv, k: keys, v: values, slots: slots}
	b.run(&b.store, len(slots), len(slots)*k.Cols())
}

// storable checks rows x against the pages of t which they go to.
func (b *Backend) storable(name string, t, x tensor.Tensor, pageTokens int, slots []int32) (kernels.Floats, bool) {
	if _, ok := format(t.DType); !ok || t.Rank != 3 || t.Dims[1] != pageTokens || pageTokens <= 0 {
		b.fail("store: %s are %v %v with pages of %d tokens", name, t.DType, t.Shape(), pageTokens)
		return kernels.Floats{}, false
	}
	for _, slot := range slots {
		if slot < 0 || int(slot) >= t.Dims[0]*pageTokens {
			b.fail("store: slot %d of %d pages of %d tokens", slot, t.Dims[0], pageTokens)
			return kernels.Floats{}, false
		}
	}
	return b.floats("store", name, x, len(slots), t.Dims[2])
}

func (op *storeKV) run(_ *worker, unit int) {
	op.put(op.kv.K, op.k, unit)
	if op.v.V != nil {
		op.put(op.kv.V, op.v, unit)
	}
}

func (op *storeKV) put(t tensor.Tensor, x kernels.Floats, i int) {
	slot, width := int(op.slots[i]), t.Dims[2]
	at := slot/op.kv.PageTokens*t.RowStride() + slot%op.kv.PageTokens*width
	to, from := t.Data[t.DType.Bytes(int64(at)):], row(x, i, width)
	if t.DType == meta.BFloat16 {
		op.set.NarrowBFloat16(to, from)
		return
	}
	narrow(to, t.DType, from)
}
