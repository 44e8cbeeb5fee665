package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
)

// pageRows are dim channels, from column first on, of the rows in the pages of a layer.
type pageRows struct {
	set        *kernels.Set
	pages      pages
	first, dim int
}

// copyTo copies the channels at a position to dst. wide is scratch memory of pages.widened
// floats.
func (k *pageRows) copyTo(dst []float32, table []int32, position int, wide []float32) {
	p := &k.pages
	data := p.data[int(table[position/p.tokens])*p.page+position%p.tokens*p.row:]
	w := p.headRows(k.set, data, 0, 1, wide)
	size := w.Format.Size()
	mat.Widen(dst[:k.dim], w.Data[k.first*size:][:k.dim*size], w.Format)
}

// A gatheredRow is one row of queries with some of its heads, and the keys that it sees. All heads share one key/value
// head.
type gatheredRow struct {
	row         int // of queries and results
	head, heads int // of the queries
	count, most int // keys of this row, and the most of any row
	// gather copies keys or values [base, base+n) to rows, each as wide as keys or values are.
	gather func(rows []float32, base, n int, values bool, wide []float32)
}

// gatheredScratch returns the scratch of attendGathered in floats, for the given numbers of heads
// and keys. wide is that of gather.
func (op *attentionOp) gatheredScratch(heads, most, wide int) int {
	return heads*most + 2*keyBlock*max(op.a.Dim, op.a.ValueDim) + wide
}

// attendGathered computes attention of r over its keys, which are copied to scratch memory in
// blocks. It sums them in the order that r lists them in.
func (op *attentionOp) attendGathered(r gatheredRow, scratch []float32) {
	dim, width := op.a.Dim, op.a.ValueDim
	block := keyBlock * max(dim, width)
	scores, scratch := mat.Floats{V: scratch[:r.heads*r.count], Stride: r.count}, scratch[r.heads*r.most:]
	rows, columns, wide := scratch[:block], scratch[block:][:keyBlock*dim], scratch[2*block:]
	clear(scores.V)
	q := mat.Floats{V: row(op.q, r.row, op.a.Heads*dim)[r.head*dim:], Stride: dim}
	for base := 0; base < r.count; base += keyBlock {
		n := min(keyBlock, r.count-base)
		r.gather(rows, base, n, false, wide)
		op.set.Vector.Transpose(mat.Floats{V: columns, Stride: keyBlock}, weightsOf(rows, dim), n, dim)
		op.set.GEMV.Mix(&gemv.RowSum{Y: from(scores, 0, base), P: q, Step: 1, V: weightsOf(columns, keyBlock), Keys: dim, Tokens: r.heads, Cols: n})
	}
	sum := mat.Floats{V: row(op.dst, r.row, op.a.Heads*width)[r.head*width:][:r.heads*width], Stride: width}
	clear(sum.V)
	for h := range r.heads {
		op.softmax(row(scores, h, r.count), 0, r.head+h)
	}
	for base := 0; base < r.count; base += keyBlock {
		n := min(keyBlock, r.count-base)
		r.gather(rows, base, n, true, wide)
		op.set.GEMV.Mix(&gemv.RowSum{Y: sum, P: from(scores, 0, base), Step: 1, V: weightsOf(rows, width), Keys: n, Tokens: r.heads, Cols: width})
	}
}

// partOfHeads returns the first query head of a part and how many it has, which is none for the last parts where the
// heads do not divide.
func (op *attentionOp) partOfHeads(part, parts int) (head, heads int) {
	heads = ceil(op.a.Heads, parts)
	head = part * heads
	return head, min(heads, op.a.Heads-head)
}

// An indexedRow is one row of an indexer's queries. The score of a key is the sum over heads of
// the head's weight times its dot product, clamped below at 0.
type indexedRow struct {
	set      *kernels.Set
	a        *backend.IndexArgs
	q        mat.Floats // [Heads][Dim]
	weights  []float32  // of heads
	products mat.Floats // scratch, [Heads][keyBlock]
}

// score sets sums to the scores of keys, which are columns of keyBlock floats.
func (r *indexedRow) score(sums, columns []float32) {
	clear(r.products.V)
	r.set.GEMV.Mix(&gemv.RowSum{Y: r.products, P: r.q, Step: 1, V: weightsOf(columns, keyBlock), Keys: r.a.Dim, Tokens: r.a.Heads, Cols: len(sums)})
	clear(sums)
	for h, weight := range r.weights {
		weight := float32(weight * r.a.WeightScale)
		for j, x := range row(r.products, h, len(sums)) {
			sums[j] += float32(weight * max(0, float32(x*r.a.Scale)))
		}
	}
}
