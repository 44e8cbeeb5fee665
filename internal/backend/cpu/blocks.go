package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Blocked = (*Backend)(nil)

// chooseBlocks is one call of ChooseBlocks. Its places are blocks. A row has the scores of all
// blocks of one head after those of the previous head.
type chooseBlocks struct {
	scoring
	set       *kernels.Set
	chosen, q mat.Floats
	keys      pages
	a         backend.BlockArgs
	blocks    int // most that a row sees
}

// ChooseBlocks implements [backend.Blocked].
func (b *Backend) ChooseBlocks(chosen, q tensor.Tensor, keys backend.KV, spans []backend.Span, a backend.BlockArgs) {
	if b.failed.Load() {
		return
	}
	if a.Heads < 1 || a.Dim < 1 || a.Size < 1 || a.Count < 1 || a.Local < 0 || a.Local > a.Count {
		b.fail("indexer of blocks: invalid arguments: %+v", a)
		return
	}
	n := q.Rows()
	op := chooseBlocks{scoring: scoring{rows: &b.sparse}, set: b.set, a: a}
	var ok, ok2, ok3 bool
	op.chosen, ok = b.floats("indexer", "choice", chosen, n, a.Heads*a.Count)
	op.q, ok2 = b.floats("indexer", "queries", q, n, a.Heads*a.Dim)
	op.keys, ok3 = b.pages("keys of the indexer", &keys, keys.K, 1, a.Dim)
	if !ok || !ok2 || !ok3 {
		return
	}
	longest, _, ok := b.checkSpans(spans, n, op.keys.count, keys.PageTokens)
	if !ok {
		return
	}
	op.blocks = ceil(longest, a.Size)
	b.sparse.split(spans, a.Count*a.Size)
	if b.sparse.rows == 0 || !b.reserve(a.Heads*op.blocks+keyBlock*(a.Dim+a.Heads)+op.keys.widened()) {
		return
	}
	b.chooseBlocks = op
	b.chooseBlocks.runAll(b, &b.chooseBlocks, op.blocks, longest*a.Heads*max(1, a.Dim/8), op.blocks)
}

func (op *chooseBlocks) run(w *worker, unit int) {
	s, i, scores, from := op.unit(w, unit)
	own, row, scratch := (s.Start+i)/op.a.Size, s.First+i, w.scratch.v[op.a.Heads*op.blocks:]
	switch op.step {
	case chooseRow:
		op.score(scores, scratch, s, i, 0, own+1)
	case choosePart:
		op.score(scores, scratch, s, i, from, min(own+1, from+op.each))
		return
	}
	for h := range op.a.Heads {
		own := scores[h*op.blocks:][:own+1]
		for j := range min(op.a.Local, len(own)) {
			own[len(own)-1-j] = float32(math.Inf(1))
		}
		chooseHighest(op.chosen.V[row*op.chosen.Stride+h*op.a.Count:][:op.a.Count], own)
	}
}

// score sets the scores of blocks [from, to) of row i of s.
func (op *chooseBlocks) score(scores, scratch []float32, s *backend.Span, i, from, to int) {
	heads, dim, size := op.a.Heads, op.a.Dim, op.a.Size
	columns, scratch := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	products, wide := mat.Floats{V: scratch[:keyBlock*heads], Stride: keyBlock}, scratch[keyBlock*heads:]
	q := mat.Floats{V: row(op.q, s.First+i, heads*dim), Stride: dim}
	for block := from; block < to; block++ {
		for h := range heads {
			scores[h*op.blocks+block] = float32(math.Inf(-1))
		}
		end := min((block+1)*size, s.Start+i+1)
		for base := block * size; base < end; base += keyBlock {
			n := min(keyBlock, end-base)
			op.keys.each(s.Pages, base, base+n, func(position, n int, k []byte) {
				op.set.Vector.Transpose(mat.Floats{V: columns[position-base:], Stride: keyBlock}, op.keys.headRows(op.set, k, 0, n, wide), n, dim)
			})
			clear(products.V)
			op.set.GEMV.Mix(&gemv.RowSum{Y: products, P: q, Step: 1, V: weightsOf(columns, keyBlock), Keys: dim, Tokens: heads, Cols: n})
			for h := range heads {
				best := &scores[h*op.blocks+block]
				for _, x := range row(products, h, n) {
					*best = max(*best, x)
				}
			}
		}
	}
}

// attentionBlocks computes the rows of AttentionBlocks that see a choice of blocks. A unit is a
// row with some of the query heads of a group, which share a key/value head and a choice.
type attentionBlocks struct {
	attentionOp
	chosen mat.Floats
	blocks backend.BlockArgs
	rows   *sparseRows
	groups int
	parts  int // of the query heads of a group
}

// AttentionBlocks implements [backend.Blocked].
func (b *Backend) AttentionBlocks(dst, q, chosen tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs, blocks backend.BlockArgs) {
	if b.failed.Load() {
		return
	}
	n := q.Rows()
	if a.KVHeads < 1 || blocks.Heads < 1 || a.Heads%a.KVHeads != 0 || a.Heads%blocks.Heads != 0 || a.Heads < 1 || a.Dim < 1 || a.ValueDim < 1 || blocks.Size < 1 || blocks.Count < 1 ||
		a.Window != 0 || a.Chunk != 0 || a.Softcap != 0 || len(a.Slopes) > 0 || !a.Relative.States.IsZero() || !a.Sinks.IsZero() {
		b.fail("attention to blocks: invalid arguments: %+v %+v", a, blocks)
		return
	}
	op := attentionBlocks{rows: &b.sparse, blocks: blocks, groups: a.KVHeads}
	for op.groups%blocks.Heads != 0 {
		op.groups += a.KVHeads
	}
	var ok, ok2, ok3, ok4, ok5 bool
	op.set, op.a, op.group = b.set, a, a.Heads/op.groups
	op.q, ok = b.floats("attention", "query", q, n, a.Heads*a.Dim)
	op.dst, ok2 = b.floats("attention", "result", dst, n, a.Heads*a.ValueDim)
	op.chosen, ok3 = b.floats("attention", "choice", chosen, n, blocks.Heads*blocks.Count)
	op.k, ok4 = b.pages("keys", &kv, kv.K, a.KVHeads, a.Dim)
	op.v, ok5 = b.pages("values", &kv, kv.V, a.KVHeads, a.ValueDim)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 {
		return
	}
	if _, _, ok = b.checkSpans(spans, n, min(op.k.count, op.v.count), kv.PageTokens); !ok {
		return
	}
	b.sparse.split(spans, blocks.Most())
	if len(b.sparse.dense) > 0 {
		b.Attention(dst, q, kv, b.sparse.dense, a)
	}
	if b.sparse.rows == 0 {
		return
	}
	op.parts = min(op.group, ceil(2*len(b.pool.workers), b.sparse.rows*op.groups))
	if !b.reserve(ceil(op.group, op.parts)*blocks.Most() + keyBlock*a.Dim + max(op.k.widened(), op.v.widened())) {
		return
	}
	b.attentionBlocks = op
	b.run(&b.attentionBlocks, b.sparse.rows*op.groups*op.parts, b.sparse.rows*blocks.Most()*a.Heads*max(1, a.Dim/8))
}

func (op *attentionBlocks) run(w *worker, unit int) {
	heads, dim, width := ceil(op.group, op.parts), op.a.Dim, op.a.ValueDim
	first, group := unit%op.parts*heads, unit/op.parts%op.groups
	if heads = min(heads, op.group-first); heads <= 0 {
		return
	}
	s, i := op.rows.at(unit / op.parts / op.groups)
	r, head, kvHead := s.First+i, group*op.group+first, group*op.a.KVHeads/op.groups
	chosen := row(op.chosen, r, op.blocks.Heads*op.blocks.Count)[group*op.blocks.Heads/op.groups*op.blocks.Count:][:op.blocks.Count]
	pitch := op.blocks.Most()
	scores, scratch := mat.Floats{V: w.scratch.v[:heads*pitch], Stride: pitch}, w.scratch.v[heads*pitch:]
	columns, wide := scratch[:keyBlock*dim], scratch[keyBlock*dim:]
	clear(scores.V)
	q := mat.Floats{V: row(op.q, r, op.a.Heads*dim)[head*dim:], Stride: dim}
	seen := op.eachBlock(s, i, chosen, func(at, lo, hi int) {
		for base := lo; base < hi; base += keyBlock {
			end := min(base+keyBlock, hi)
			op.k.each(s.Pages, base, end, func(position, n int, k []byte) {
				op.set.Vector.Transpose(mat.Floats{V: columns[position-base:], Stride: keyBlock}, op.k.headRows(op.set, k, kvHead, n, wide), n, dim)
			})
			op.set.GEMV.Mix(&gemv.RowSum{Y: from(scores, 0, at+base-lo), P: q, Step: 1, V: weightsOf(columns, keyBlock), Keys: dim, Tokens: heads, Cols: end - base})
		}
	})
	for h := range heads {
		op.softmax(row(scores, h, seen), 0, head+h)
	}
	sum := mat.Floats{V: row(op.dst, r, op.a.Heads*width)[head*width:][:heads*width], Stride: width}
	clear(sum.V)
	op.eachBlock(s, i, chosen, func(at, lo, hi int) {
		for base := lo; base < hi; base += keyBlock {
			op.v.each(s.Pages, base, min(base+keyBlock, hi), func(position, n int, v []byte) {
				op.set.GEMV.Mix(&gemv.RowSum{Y: sum, P: from(scores, 0, at+position-lo), Step: 1, V: op.v.headRows(op.set, v, kvHead, n, wide), Keys: n, Tokens: heads, Cols: width})
			})
		}
	})
}

// eachBlock calls f for each chosen block of row i of s, and for its tail, with the number of
// positions before it and those of its positions [lo, hi) that the row sees. It returns the total
// number of these positions.
func (op *attentionBlocks) eachBlock(s *backend.Span, i int, chosen []float32, f func(at, lo, hi int)) (seen int) {
	for _, bits := range chosen {
		lo := int(math.Float32bits(bits)) * op.blocks.Size
		hi := min(lo+op.blocks.Size, s.Start+i+1)
		f(seen, lo, hi)
		seen += hi - lo
	}
	if end := s.Start + i + 1; op.blocks.Tail && end%op.blocks.Size != 0 {
		f(seen, end-end%op.blocks.Size, end)
		seen += end % op.blocks.Size
	}
	return seen
}
