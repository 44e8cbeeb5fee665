package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
)

const (
	tileRows   = 48      // queries (tokens times heads of a group) that read the keys together
	tileScores = 1 << 18 // floats of scores in a tile with several tokens
	mostTile   = 1 << 19 // floats of scores in a tile with one token, unless one head has more
	keyBlock   = 64      // keys transposed at a time
)

// attentionOp is one call of Attention. A unit is a tile: some tokens of one span, with some or
// all of the query heads of one key/value head.
type attentionOp struct {
	set    *kernels.Set
	dst, q mat.Floats
	k, v   pages
	spans  []backend.Span
	kernel []kernel // of each span
	sinks  []float32
	relative
	a     backend.AttentionArgs
	group int    // query heads per key/value head
	cuts  [3]cut // of spans by their kernel, from attentionTiles on
	pitch int    // row stride of scores
	// zeros are added to rounded results, because the sign of a zero would otherwise depend on
	// its tile.
	zeros [gemm.PackRows]float32
}

// Attention computes each query separately: the scores of all its visible keys, their softmax,
// then the sum of the values in ascending position. The result of a query depends only on its
// visible keys.
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
	keys, ok3 := b.pages("keys", &kv, kv.K, a.KVHeads, a.Dim)
	values, ok4 := b.pages("values", &kv, kv.V, a.KVHeads, a.ValueDim)
	sinks, ok5 := b.vector("attention", "sinks", a.Sinks, slotSinks, a.Heads)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return
	}
	longest, rows, ok := b.checkSpans(spans, n, min(keys.count, values.count), kv.PageTokens)
	if !ok {
		return
	}
	if len(a.Slopes) != 0 && len(a.Slopes) != a.Heads {
		b.fail("attention: %d slopes for %d heads", len(a.Slopes), a.Heads)
		return
	}
	if a.RoundedSlopes && (len(a.Slopes) == 0 || a.Window > 0 || a.Chunk > 0) {
		b.fail("attention: %d rounded slopes in a window of %d and chunks of %d", len(a.Slopes), a.Window, a.Chunk)
		return
	}
	biases, ok := b.relative("attention", n, &a)
	if !ok {
		return
	}
	if len(a.Prompts) < n || len(a.Slopes) > 0 || biases.rank > 0 {
		a.Prompts = nil
	}
	b.attention = attentionOp{set: b.set, dst: out, q: query, k: keys, v: values, sinks: sinks, relative: biases, a: a, group: a.Heads / a.KVHeads, pitch: longest}
	op := &b.attention
	b.byRole.split(op, spans)
	op.spans, op.kernel = b.byRole.spans, b.byRole.kernels
	if !b.reserve(op.plan(len(b.pool.workers))) {
		return
	}
	b.run(op, op.units(), rows*longest*a.Heads*max(1, a.Dim/8))
}

// spansByRole holds the spans whose rows have one role, prompt or generated, and the kernel of
// each span.
type spansByRole struct {
	spans   []backend.Span
	kernels []kernel
	choice  choice
}

// split divides spans by role and chooses their kernels.
func (p *spansByRole) split(op *attentionOp, spans []backend.Span) {
	prompts := op.a.Prompts
	p.spans, p.kernels = p.spans[:0], p.kernels[:0]
	p.choice = choice{set: op.set, k: &op.k, v: &op.v, mode: exact}
	if prompts != nil {
		p.choice.mode = rounded
	}
	for _, s := range spans {
		for s.Rows > 0 {
			n, part := s.Rows, s
			p.choice.role = backend.Generated
			if prompts != nil {
				for n = 1; n < s.Rows && prompts[s.First+n] == prompts[s.First]; n++ {
				}
				if prompts[s.First] {
					p.choice.role = backend.Prompt
				}
			}
			part.Rows, p.choice.tokens = n, n
			p.spans, p.kernels = append(p.spans, part), append(p.kernels, p.choice.kernel())
			s.First, s.Rows, s.Start = s.First+n, s.Rows-n, s.Start+n
		}
	}
}

// checkSpans returns the largest number of keys that one query may see, and the number of rows.
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

// cut is the size of tiles: tokens of a span, heads of keys and values, and query heads for each
// of these.
type cut struct{ tokens, kvHeads, heads int }

// plan sets the size of tiles: enough rows to share reads of the keys, but also enough tiles to
// keep the threads busy if heads can be split. It returns the scratch of one tile.
func (op *attentionOp) plan(threads int) int {
	tiles, rounded, pages := op.cutOf(attentionTiles), op.cutOf(attentionRounded), op.cutOf(attentionPages)
	queries := op.roundedQueries()
	*tiles = cut{kvHeads: 1, heads: min(op.group, tileRows)}
	*rounded = cut{kvHeads: 1, heads: min(op.group, queries)}
	for tiles.heads > 1 && tiles.heads*op.pitch > mostTile {
		tiles.heads = ceil(tiles.heads, 2)
	}
	*pages = cut{1, 1, min(op.group, tileRows)}
	for pages.heads > 1 && padded(pages.heads)*op.pagedPitch() > mostTile {
		pages.heads = ceil(pages.heads, 2)
	}
	rows := 1
	for i := range op.spans {
		rows = max(rows, op.spans[i].Rows)
	}
	tiles.tokens = min(max(1, min(tileRows, tileScores/max(op.pitch, 1))/tiles.heads), rows)
	rounded.tokens = min(max(1, queries/rounded.heads), rows)
	for max(tiles.heads, rounded.heads, pages.heads) > 1 && op.units() < 2*threads {
		for i := range op.cuts {
			op.cuts[i].heads = ceil(op.cuts[i].heads, 2)
		}
	}
	op.widenPaged(threads)
	scratch := 0
	for _, k := range op.kernel {
		switch c := op.cutOf(k); k {
		case attentionRounded:
			scratch = max(scratch, op.roundedScratch())
		case attentionPages:
			scratch = max(scratch, op.pagedScratch())
		default:
			scratch = max(scratch, c.tokens*c.heads*(op.pitch+op.a.Dim+op.a.ValueDim+1)+keyBlock*op.a.Dim+max(op.k.widened(), op.v.widened()))
		}
	}
	return scratch
}

// cutOf returns the size of a kernel's tiles.
func (op *attentionOp) cutOf(k kernel) *cut { return &op.cuts[k-attentionTiles] }

func (op *attentionOp) units() int {
	n := 0
	for i := range op.spans {
		c := op.cutOf(op.kernel[i])
		n += ceil(op.spans[i].Rows, c.tokens) * ceil(op.a.KVHeads, c.kvHeads) * ceil(op.group, c.heads)
	}
	return n
}

func (op *attentionOp) run(w *worker, unit int) {
	for i := range op.spans {
		s, c := &op.spans[i], op.cutOf(op.kernel[i])
		parts, kvs, tiles := ceil(op.group, c.heads), ceil(op.a.KVHeads, c.kvHeads), ceil(s.Rows, c.tokens)
		if n := tiles * kvs * parts; unit >= n {
			unit -= n
			continue
		}
		part, kvHead := unit%parts, unit/parts%kvs*c.kvHeads
		// Late tiles see more keys and go first, so that the threads finish at about the same
		// time.
		first := (tiles - 1 - unit/parts/kvs) * c.tokens
		t := tileOf{span: s, kvHead: kvHead, kvHeads: min(c.kvHeads, op.a.KVHeads-kvHead), first: first, tokens: min(c.tokens, s.Rows-first)}
		t.head = kvHead*op.group + part*c.heads
		t.heads = min(c.heads, op.group-part*c.heads)
		w.record(op.kernel[i])
		switch op.kernel[i] {
		case attentionRounded:
			op.roundedTile(w.scratch.v, &t)
		case attentionPages:
			op.pagedTile(w, &t)
		default:
			op.tile(w.scratch.v, &t)
		}
		return
	}
}

// tileOf has tokens rows of a span from first on. It has heads query heads from head on, which
// share a key/value head, and as many for each other key/value head.
type tileOf struct {
	span            *backend.Span
	kvHead, kvHeads int
	head, heads     int
	first, tokens   int
}

// visible returns the range of positions that row i of s sees.
func (op *attentionOp) visible(s *backend.Span, i int) (lo, hi int) {
	hi = s.Start + i + 1
	if op.a.Window > 0 {
		lo = max(0, hi-op.a.Window)
	}
	if op.a.Chunk > 0 {
		lo = max(lo, (hi-1)/op.a.Chunk*op.a.Chunk)
	}
	return lo, hi
}

// tile computes the rows of one tile, token by token and head by head.
func (op *attentionOp) tile(scratch []float32, t *tileOf) {
	dim, width, s := op.a.Dim, op.a.ValueDim, t.span
	m := t.tokens * t.heads
	q, scratch := scratch[:m*dim], scratch[m*dim:]
	sum, scratch := scratch[:m*width], scratch[m*width:]
	inverse, scratch := scratch[:m], scratch[m:]
	block, scratch := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	widened := max(op.k.widened(), op.v.widened())
	wide, scratch := scratch[:widened], scratch[widened:]
	for i := range t.tokens {
		copy(q[i*t.heads*dim:][:t.heads*dim], op.q.V[(s.First+t.first+i)*op.q.Stride+t.head*dim:])
	}
	lo, _ := op.visible(s, t.first)
	_, hi := op.visible(s, t.first+t.tokens-1)
	scores := mat.Floats{V: scratch[:m*op.pitch], Stride: op.pitch}
	op.score(scores, mat.Floats{V: q, Stride: dim}, block, wide, t, lo, hi)
	for i := range m {
		own, end := op.visible(s, t.first+i/t.heads)
		inverse[i] = op.exponentials(row(scores, i, op.pitch)[own-lo:end-lo], s.First+t.first+i/t.heads, t.head+i%t.heads)
	}
	clear(sum)
	op.sumValues(mat.Floats{V: sum, Stride: width}, scores, wide, t, lo)
	for i := range m {
		op.set.Vector.ScaleMax(sum[i*width:][:width], inverse[i])
	}
	for i := range t.tokens {
		to := op.dst.V[(s.First+t.first+i)*op.dst.Stride+t.head*width:]
		copy(to[:t.heads*width], sum[i*t.heads*width:])
	}
}

// score computes the products of a tile's queries with the keys in [lo, hi). Each product is
// summed in ascending order of the channels. It transposes the keys, so that a vector holds the
// products of several keys; the queries share that cost.
func (op *attentionOp) score(scores, q mat.Floats, block, wide []float32, t *tileOf, lo, hi int) {
	m, dim := t.tokens*t.heads, op.a.Dim
	for i := range m {
		clear(row(scores, i, hi-lo))
	}
	for base := lo; base < hi; base += keyBlock {
		end := min(base+keyBlock, hi)
		op.k.each(t.span.Pages, base, end, func(position, n int, k []byte) {
			op.set.Vector.Transpose(mat.Floats{V: block[position-base:], Stride: keyBlock}, op.k.headRows(op.set, k, t.kvHead, n, wide), n, dim)
		})
		op.set.GEMV.Mix(&gemv.RowSum{Y: from(scores, 0, base-lo), P: q, Step: 1, V: weightsOf(block, keyBlock), Keys: dim, Tokens: m, Cols: end - base})
	}
}

// sumValues adds up the values of a tile, weighted by its scores, which begin at position base.
// Positions that all tokens see are summed for all tokens in one call, and earlier and later
// positions for each token separately. Each token's sum is in ascending order of positions.
func (op *attentionOp) sumValues(sum, scores mat.Floats, wide []float32, t *tileOf, base int) {
	commonLo, _ := op.visible(t.span, t.first+t.tokens-1)
	_, commonHi := op.visible(t.span, t.first)
	commonLo = min(commonLo, commonHi)
	part := func(lo, hi, token, count int) {
		op.v.each(t.span.Pages, lo, hi, func(position, n int, v []byte) {
			at := token * t.heads
			op.set.GEMV.Mix(&gemv.RowSum{Y: from(sum, at, 0), P: from(scores, at, position-base), Step: 1, V: op.v.headRows(op.set, v, t.kvHead, n, wide), Keys: n, Tokens: count * t.heads, Cols: op.a.ValueDim})
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
func (op *attentionOp) softmax(x []float32, query, head int) {
	inverse := op.exponentials(x, query, head)
	op.set.Vector.ScaleMax(x, inverse)
}

// exponentials turns the scores of one query into weights that are not normalised, and returns
// the inverse of their sum. The last score is that of the query's own position. query is its row
// in the call.
func (op *attentionOp) exponentials(x []float32, query, head int) (inverse float32) {
	var top float32
	if softcap := op.a.Softcap; softcap > 0 {
		op.set.Vector.Tanh(x, op.a.Scale/softcap, softcap)
		top = op.set.Vector.ScaleMax(x, 1)
	} else {
		top = op.set.Vector.ScaleMax(x, op.a.Scale)
	}
	if len(op.a.Slopes) > 0 || op.relative.rank > 0 {
		op.bias(x, query, head)
		top = op.set.Vector.ScaleMax(x, 1)
	}
	var sink float32
	if op.sinks != nil {
		top = max(top, op.sinks[head])
		sink = float32(vector.AccurateExp(float64(op.sinks[head] - top)))
	}
	return 1 / (op.set.Vector.ExpSum(x, top) + sink)
}
