package cpu

import "github.com/heftai/heft/internal/kernels"

// Most queries of a tile that pass keys, and values, in one call of a kernel.
const (
	scoreQueries = 8
	weighQueries = 4
)

// paged is a page's part of one key/value head for kernels that go from page to page.
func (p *pages) paged(head int) kernels.Paged {
	return kernels.Paged{Data: p.data[head*p.head:], Page: p.page, Row: p.row, Format: p.format, Blocks: p.blocks > 0}
}

// pagedTiles reports whether tiles of one token can go from page to page.
func (op *attention) pagedTiles() bool {
	k, v := op.k.paged(0), op.v.paged(0)
	return op.k.tokens == kernels.PagedTokens && op.v.tokens == kernels.PagedTokens && op.set.Pages(&k) && op.set.Pages(&v)
}

func wholeBlocks(n int) int { return ceil(n, kernels.BlockColumns) * kernels.BlockColumns }

// pagedPitch is that of scores which begin with a page and end with one.
func (op *attention) pagedPitch() int {
	return (ceil(op.pitch, kernels.PagedTokens) + 1) * kernels.PagedTokens
}

func (op *attention) pagedScratch() int {
	return op.cuts[0].heads*(op.pagedPitch()+wholeBlocks(op.a.ValueDim)) + scoreQueries*wholeBlocks(op.a.Dim)
}

// pagedTile is tile for one token, with the same sums in the same order. Its queries, which are of
// as many heads, read pages where they lie; keys beside those that it sees get scores that nobody
// looks at.
func (op *attention) pagedTile(w *worker, t *tileOf) {
	s, dim, width, pitch := t.span, op.a.Dim, wholeBlocks(op.a.ValueDim), op.pagedPitch()
	scratch := w.scratch.v
	scores := kernels.Floats{V: scratch[:t.heads*pitch], Stride: pitch}
	sums := kernels.Floats{V: scratch[len(scores.V):][:t.heads*width], Stride: width}
	turned := scratch[len(scores.V)+len(sums.V):][:scoreQueries*wholeBlocks(dim)]
	lo, hi := op.visible(s, t.first)
	first := lo / kernels.PagedTokens
	at, pages := lo-first*kernels.PagedTokens, s.Pages[first:ceil(hi, kernels.PagedTokens)]
	q := op.q.V[(s.First+t.first)*op.q.Stride+t.head*dim:]

	w.paged = op.k.paged(t.kvHead)
	for h := 0; h < t.heads; {
		n := atMost(scoreQueries, t.heads-h)
		turnQueries(turned[:n*wholeBlocks(dim)], q[h*dim:], n, dim)
		op.set.Scores(from(scores, h, 0), turned, n, &w.paged, pages, dim)
		h += n
	}
	clear(sums.V)
	w.paged = op.v.paged(t.kvHead)
	var inverse [weighQueries]float32
	for h := 0; h < t.heads; {
		n := atMost(weighQueries, t.heads-h)
		for i := range n {
			inverse[i] = op.exponentials(row(scores, h+i, at+hi-lo)[at:], t.head+h+i)
		}
		op.set.Weigh(from(sums, h, 0), from(scores, h, at), n, &w.paged, pages, at, hi-lo, op.a.ValueDim)
		for i := range n {
			sum := row(sums, h+i, op.a.ValueDim)
			op.set.ScaleMax(sum, inverse[i])
			copy(op.dst.V[(s.First+t.first)*op.dst.Stride+(t.head+h+i)*op.a.ValueDim:], sum)
		}
		h += n
	}
}

// atMost is the largest power of two up to both.
func atMost(most, n int) int {
	for most > n {
		most /= 2
	}
	return most
}

// turnQueries lays n queries channel by channel, with zeros behind the last.
func turnQueries(dst, q []float32, n, dim int) {
	for h := range n {
		for c, v := range q[h*dim:][:dim] {
			dst[c*n+h] = v
		}
	}
	clear(dst[dim*n:])
}
