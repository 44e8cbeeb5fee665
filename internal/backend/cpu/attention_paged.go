package cpu

import (
	"math/bits"
	"slices"

	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// The size of a tile of one token.
const (
	mostQueries = 8         // of a head that pass keys in one call of a kernel
	mostHeads   = 16 << 10  // bytes that heads of a page have together
	mostScores  = 128 << 10 // floats of several heads
	pagedBytes  = 256 << 10 // of pages that all queries pass, where they are too many for one call
)

// paged returns a page's part of some key/value heads, for kernels that go from page to page.
func (p *pages) paged(head, heads int) attention.Paged {
	return attention.Paged{Data: p.data[head*p.head:], Page: p.page, Head: p.head, Row: p.row, Heads: heads, Format: p.format, Blocks: p.blocks > 0}
}

func wholeBlocks(n int) int { return ceil(n, quant.BlockColumns) * quant.BlockColumns }

// pagedPitch returns the row stride of scores that begin and end with whole pages.
func (op *attentionOp) pagedPitch() int {
	return (ceil(op.pitch, attention.PagedTokens) + 1) * attention.PagedTokens
}

// widenPaged gives tiles of one token several heads of keys and values that are adjacent in a
// page, because long sequential reads are faster.
func (op *attentionOp) widenPaged(threads int) {
	c := op.cutOf(attentionPages)
	queries := padded(c.heads)
	if !slices.Contains(op.kernel, attentionPages) || queries > op.set.Attention.MaxQueries() {
		return
	}
	for wide := 2; wide <= op.a.KVHeads && wide*max(op.k.head, op.v.head) <= mostHeads && wide*queries*op.pagedPitch() <= mostScores; wide *= 2 {
		narrow := c.kvHeads
		if c.kvHeads = wide; op.units() < 4*threads {
			c.kvHeads = narrow
			return
		}
	}
}

// padded rounds n queries up to a power of two, at most mostQueries.
func padded(n int) int {
	whole, rest := n/mostQueries*mostQueries, n%mostQueries
	if rest == 0 {
		return whole
	}
	return whole + 1<<bits.Len(uint(rest-1))
}

func (op *attentionOp) pagedScratch() int {
	c := op.cutOf(attentionPages)
	return c.kvHeads * padded(c.heads) * (op.pagedPitch() + wholeBlocks(op.a.ValueDim) + wholeBlocks(op.a.Dim) + 1)
}

// pagedTile is tile for one token and some key heads, with the same sums in the same order. It
// reads pages in place and ignores the scores of keys outside its range.
func (op *attentionOp) pagedTile(w *worker, t *tileOf) {
	dim, width, pitch := wholeBlocks(op.a.Dim), wholeBlocks(op.a.ValueDim), op.pagedPitch()
	rows, scratch := t.kvHeads*padded(t.heads), w.scratch.v
	scores, scratch := mat.Floats{V: scratch[:rows*pitch], Stride: pitch}, scratch[rows*pitch:]
	sums, scratch := mat.Floats{V: scratch[:rows*width], Stride: width}, scratch[rows*width:]
	turned, inverse := scratch[:rows*dim], scratch[rows*dim:][:rows]
	lo, hi := op.visible(t.span, t.first)
	first := lo / attention.PagedTokens
	at, end := lo-first*attention.PagedTokens, hi-first*attention.PagedTokens
	pages := t.span.Pages[first:ceil(hi, attention.PagedTokens)]

	w.paged = op.k.paged(t.kvHead, t.kvHeads)
	clear(turned)
	t.eachQuery(op.group, func(row, column, n, head int) {
		q := op.q.V[(t.span.First+t.first)*op.q.Stride+head*op.a.Dim:][:op.a.Dim]
		for c, v := range q {
			turned[row*dim+c*n+column] = v
		}
	})
	t.eachCall(pages, op.k.page, func(base int, pages []int32, row, n, _ int) {
		op.set.Attention.Scores(from(scores, row, base), turned[row*dim:], n, &w.paged, pages, op.a.Dim)
	})
	clear(sums.V)
	t.eachQuery(op.group, func(first, column, _, head int) {
		r := first + column
		inverse[r] = op.exponentials(row(scores, r, end)[at:], t.span.First+t.first, head)
	})
	w.paged = op.v.paged(t.kvHead, t.kvHeads)
	most := op.set.Attention.MaxQueries()
	t.eachCall(pages, op.v.page, func(base int, pages []int32, row, n, used int) {
		begin, end := max(at, base), min(end, base+len(pages)*attention.PagedTokens)
		for i := 0; i < used; i += most {
			op.set.Attention.WeightedSum(attention.PageSum{Y: from(sums, row+i, 0), W: from(scores, row+i, begin), Queries: min(n, most), P: &w.paged, Pages: pages, First: begin - base, Keys: end - begin, Cols: op.a.ValueDim})
		}
	})
	t.eachQuery(op.group, func(first, column, _, head int) {
		sum := row(sums, first+column, op.a.ValueDim)
		op.set.Vector.ScaleMax(sum, inverse[first+column])
		copy(op.dst.V[(t.span.First+t.first)*op.dst.Stride+head*op.a.ValueDim:], sum)
	})
}

// eachCall calls f for some pages, of which the first key is that of a column of the scores, and for
// the queries of a call of a kernel: n for each head of keys, in rows of the scores from row on, of
// which used are there. Where queries take several calls, pages wait for them in the second-level cache.
func (t *tileOf) eachCall(pages []int32, bytes int, f func(base int, pages []int32, row, n, used int)) {
	block := len(pages)
	if t.heads > mostQueries {
		block = max(1, pagedBytes/bytes)
	}
	for p := 0; p < len(pages); p += block {
		for h := 0; h < t.heads; h += mostQueries {
			used := min(mostQueries, t.heads-h)
			f(p*attention.PagedTokens, pages[p:min(p+block, len(pages))], h*t.kvHeads, padded(used), used)
		}
	}
}

// eachQuery calls f for each query: head of them, which is in row first + column of the scores, of n
// from first on which belong to one head of keys.
func (t *tileOf) eachQuery(group int, f func(first, column, n, head int)) {
	for h := 0; h < t.heads; h += mostQueries {
		used := min(mostQueries, t.heads-h)
		n := padded(used)
		for k := range t.kvHeads {
			for i := range used {
				f(h*t.kvHeads+k*n, i, n, t.head+k*group+h+i)
			}
		}
	}
}
