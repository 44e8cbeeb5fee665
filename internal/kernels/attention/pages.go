// Package attention implements the kernels of attention: scores and weighted sums over the paged
// KV cache, in float32, bfloat16 and blocks of q8_0, and the softmax of prompts with operands
// rounded to bfloat16.
package attention

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// PagedTokens is the number of tokens in a page that [Kernels.Scores] and [Kernels.WeightedSum]
// read.
const PagedTokens = 16

// Paged is the part of pages that belongs to some heads. Pages are Page bytes apart, the heads of a
// page Head bytes, and the tokens of a head Row bytes. With Blocks tokens are blocks of Q8, else
// their elements have Format.
type Paged struct {
	Data            []byte
	Page, Head, Row int
	Heads           int
	Format          mat.Format
	Blocks          bool
	arguments       pagesArguments // of the kernel at work, which would be allocated elsewhere
}

// pagesArguments holds the arguments of the kernels in _asm/c/attention/avx512_pages.c, which
// documents them. Addresses are integers, because they may point beyond the ends of slices.
type pagesArguments struct {
	y          unsafe.Pointer
	ys         int64
	x          unsafe.Pointer
	xs         int64
	w          unsafe.Pointer
	pages      unsafe.Pointer
	ps, hs, ws int64
	heads      int64
	n, keys    int64
	kept       [20]int64
}

// Bytes returns the size in bytes of n columns of a token.
func (p *Paged) Bytes(n int) int {
	if p.Blocks {
		return mat.CeilDiv(n, quant.BlockColumns) * quant.Q8Bytes
	}
	return n * p.Format.Size()
}

// pager is implemented by variants that read several pages in one call. The caller has checked
// bounds.
type pager interface {
	scores(y mat.Floats, q []float32, queries int, p *Paged, pages []int32, dim int)
	weigh(o PageSum)
	mostWeighed() int
}

// HasPages reports whether the variant implements [Kernels.Scores] and [Kernels.WeightedSum].
// They read pages of every format except float16.
func (s *Kernels) HasPages() bool { return s.pager != nil }

// pagedWork is the largest number of multiplications in one call of a kernel, which the scheduler
// cannot preempt.
const pagedWork = 1 << 20

// Scores sets y[h·queries+i][j] to the dot product of query i of head h with key j of the given
// pages. Each is summed in ascending order of the channels, like Columns and Mix. A head has 1,
// 2, 4 or 8 queries. Channel c of query i of head h is at q[(h·width+c)·queries+i], where width
// is dim rounded up to a multiple of 32. Channels from dim on are 0.
func (s *Kernels) Scores(y mat.Floats, q []float32, queries int, p *Paged, pages []int32, dim int) {
	q = q[:mat.CeilDiv(dim, quant.BlockColumns)*quant.BlockColumns*queries*p.Heads]
	for most := max(1, pagedWork/(PagedTokens*len(q))); len(pages) > 0; {
		n := min(most, len(pages))
		y.Check(queries*p.Heads, n*PagedTokens)
		p.check(pages[:n], dim)
		s.pager.scores(y, q, queries, p, pages[:n], dim)
		if pages = pages[n:]; len(pages) > 0 {
			y.V = y.V[n*PagedTokens:]
		}
	}
}

// MaxQueries returns the largest number of queries per head in one call of WeightedSum.
func (s *Kernels) MaxQueries() int { return s.pager.mostWeighed() }

// PageSum holds the operands of [Kernels.WeightedSum]. Each head has Queries queries, at most
// MaxQueries. Their weights W are for Keys tokens in the Pages of P, from position First of the
// first page on. Cols is the number of columns of a value.
type PageSum struct {
	Y, W       mat.Floats // Y has room for a multiple of 32 columns
	Queries    int        // 1, 2, 4 or 8
	P          *Paged
	Pages      []int32
	First      int
	Keys, Cols int
}

// WeightedSum adds Σ_j W[h·Queries+i][j] · v[j][c] of head h to Y[h·Queries+i][c], in ascending
// order of j, as gemv's Mix does.
func (s *Kernels) WeightedSum(o PageSum) {
	rows := o.Queries * o.P.Heads
	most, left := max(1, pagedWork/(PagedTokens*rows*max(o.Cols, 1)))*PagedTokens, o.Keys
	for left > 0 {
		if o.Keys = min(left, most); o.First > 0 {
			o.Keys = min(left, PagedTokens-o.First)
		}
		o.Y.Check(rows, mat.CeilDiv(o.Cols, quant.BlockColumns)*quant.BlockColumns)
		o.W.Check(rows, o.Keys)
		o.P.check(o.Pages[:mat.CeilDiv(o.First+o.Keys, PagedTokens)], o.Cols)
		s.pager.weigh(o)
		o.Pages, left, o.First = o.Pages[(o.First+o.Keys)/PagedTokens:], left-o.Keys, 0
		if left > 0 {
			o.W.V = o.W.V[o.Keys:]
		}
	}
}

// check panics if a page lies outside the data.
func (p *Paged) check(pages []int32, n int) {
	for _, page := range pages {
		_ = p.Data[int(page)*p.Page+(p.Heads-1)*p.Head+(PagedTokens-1)*p.Row+p.Bytes(n)-1]
	}
}

// Kernels are the attention kernels of one variant. They are stateless and safe for concurrent
// use.
type Kernels struct {
	ops     unpacker
	pager   pager   // nil if pages are read one piece at a time
	rounder rounder // nil if operands are never rounded
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels {
	return Kernels{ops: opsOf(v), pager: pagerOf(v), rounder: rounderOf(v)}
}
