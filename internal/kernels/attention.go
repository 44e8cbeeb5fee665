package kernels

import (
	"math"
	"unsafe"
)

// Attention of prompts with rounded operands goes through the keys in blocks: [Set.Couple]
// makes the scores of 32 queries from packed keys, a row a key; [Set.Softmax] turns them into
// weights, rounded to bfloat16, and says by what the sums so far shrink; and Couple adds the
// values, packed by [Set.PackTurned], weighted. A query's largest score, sum and result change
// with each block in one order, so that they depend on the keys that it sees and on where blocks
// begin.

// Online is the state of 16 queries, of which each sees Count keys from position First on.
type Online struct {
	Top    [PanelTokens]float32 // the largest score so far, times log2 e; −Inf in the beginning
	Sum    [PanelTokens]float32 // of the weights, 2^(score − Top)
	Factor [PanelTokens]float32 // what Softmax wants sums so far to be multiplied by
	First  [PanelTokens]int32
	Count  [PanelTokens]int32
}

// Reset is the state before the first key, of queries that see none yet.
func (o *Online) Reset() {
	*o = Online{}
	for i := range o.Top {
		o.Top[i] = float32(math.Inf(-1))
	}
}

// whole reports whether all queries see all of some keys from a position on.
func (o *Online) whole(base, keys int) bool {
	for i, first := range o.First {
		if base < int(first) || base+keys > int(first+o.Count[i]) {
			return false
		}
	}
	return true
}

// Softmax turns scores, c[key][query] of keys from position base on, a multiple of 32 of them,
// into a panel of weights at p: a score times by, which includes log2 e, is an exponent of 2. A
// key that a query does not see has no weight. What is summed are the weights as they are
// rounded.
func (s *Set) Softmax(p []uint32, c Floats, keys, base int, by float32, o *Online) {
	if keys <= 0 {
		return
	}
	c.check(keys, PanelTokens)
	s.rounder.softmax(p[:keys/2*PanelTokens], c, keys, base, by, o, o.whole(base, keys))
}

// ScaleLanes multiplies column i < 16 of some rows by by[i].
func (s *Set) ScaleLanes(x Floats, rows int, by *[PanelTokens]float32) {
	if rows > 0 {
		x.check(rows, PanelTokens)
		s.rounder.scaleLanes(x, rows, by)
	}
}

// PackTurned packs two times 16 rows of cols numbers of bfloat16: columns become the rows of
// packs that begin apart words from each other, filled up with zeros to a multiple of two packs.
// It reports whether all numbers are finite.
func (s *Set) PackTurned(dst []uint32, apart int, w, next Weights, cols int) (finite bool) {
	if cols <= 0 {
		return true
	}
	packs := ceil(cols, 2*PackRows) * 2
	_ = dst[:(packs-1)*apart+BlockK/2*PackRows]
	w.check(PackRows, cols)
	next.check(PackRows, cols)
	return s.rounder.packTurned(dst, apart, w, next, cols)
}

// Couple is [Set.Tile] for groups of 32 rows, whose packs begin ws words apart, and 32 tokens.
func (s *Set) Couple(c Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	if blocks <= 0 || groups <= 0 {
		return
	}
	c.check(2*PackRows*groups, 2*PanelTokens)
	_ = w[:(2*groups-1)*ws+blocks*BlockK/2*PackRows]
	_ = x[:xs+blocks*BlockK/2*PanelTokens]
	s.rounder.couple(c, w, ws, x, xs, blocks, groups, add)
}

// UnpackRows widens rows of blocks of Q8, each stride bytes from the next, exactly.
func (s *Set) UnpackRows(dst Floats, w []byte, stride, rows, blocks int) {
	if rows <= 0 || blocks <= 0 {
		return
	}
	dst.check(rows, blocks*BlockColumns)
	_ = w[:(rows-1)*stride+blocks*q8Bytes]
	s.ops.unpackRows(dst, w, stride, rows, blocks)
}

// NarrowRows is UnpackRows to rows of bfloat16, apart bytes from each other.
func (s *Set) NarrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int) {
	if rows <= 0 || blocks <= 0 {
		return
	}
	_ = dst[:(rows-1)*apart+blocks*2*BlockColumns]
	_ = w[:(rows-1)*stride+blocks*q8Bytes]
	s.rounder.narrowRows(dst, apart, w, stride, rows, blocks)
}

func (goOps) unpackRows(dst Floats, w []byte, stride, rows, blocks int) {
	for r := range rows {
		blocksGo(Q8, dst.V[r*dst.Stride:][:blocks*BlockColumns], w[r*stride:])
	}
}

// PagedTokens is the number of tokens of pages that [Set.Scores] and [Set.Weigh] take.
const PagedTokens = 16

// Paged is what pages have of some heads: a page begins Page bytes after the one before, a head in it
// Head bytes after the one before, and a token of a head Row bytes. Blocks says that tokens are blocks
// of Q8; else Format counts.
type Paged struct {
	Data            []byte
	Page, Head, Row int
	Heads           int
	Format          Format
	Blocks          bool
	arguments       pagesArguments // of the kernel at work, which would be allocated elsewhere
}

// pagesArguments are those of the kernels in avx512pages.c, which says more. kept is theirs: no pointers
// to the collector, as they go past the ends of what they are into.
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
	kept       [16]int64
}

// bytes is what n columns of a token take.
func (p *Paged) bytes(n int) int {
	if p.Blocks {
		return ceil(n, BlockColumns) * q8Bytes
	}
	return n * p.Format.Size()
}

// pager is what a variant implements that reads pages in one go. Bounds have been checked.
type pager interface {
	scores(y Floats, q []float32, queries int, p *Paged, pages []int32, dim int)
	weigh(y, w Floats, queries int, p *Paged, pages []int32, at, keys, cols int)
	mostWeighed() int
}

// Pages reports whether s has Scores and Weigh for tokens like those of p.
func (s *Set) Pages(p *Paged) bool { return s.pager != nil && (p.Blocks || p.Format != Float16) }

// pagedWork is the most products of a call of a kernel, for the sake of who waits for it.
const pagedWork = 1 << 20

// Scores sets y[h·queries+i][j] to the product of query i of head h with key j of some pages, each
// summed in ascending order of the channels, which is that of Columns and Mix. A head has 1, 2, 4 or 8
// queries; channel c of query i of head h is at q[(h·width+c)·queries+i], where width is dim rounded up
// to a multiple of 32, with zeros behind dim.
func (s *Set) Scores(y Floats, q []float32, queries int, p *Paged, pages []int32, dim int) {
	q = q[:ceil(dim, BlockColumns)*BlockColumns*queries*p.Heads]
	for most := max(1, pagedWork/(PagedTokens*len(q))); len(pages) > 0; {
		n := min(most, len(pages))
		y.check(queries*p.Heads, n*PagedTokens)
		p.check(pages[:n], dim)
		s.pager.scores(y, q, queries, p, pages[:n], dim)
		if pages = pages[n:]; len(pages) > 0 {
			y.V = y.V[n*PagedTokens:]
		}
	}
}

// MostWeighed is how many queries of a head pass values in one call of Weigh.
func (s *Set) MostWeighed() int { return s.pager.mostWeighed() }

// Weigh adds y[h·queries+i][c] += Σ_j w[h·queries+i][j] · v[j][c] of head h in ascending order of j, as
// Mix does, over keys tokens from position first of the first page on, for 1, 2, 4 or 8 queries a head,
// at most MostWeighed. y has room for a multiple of 32 columns.
func (s *Set) Weigh(y, w Floats, queries int, p *Paged, pages []int32, first, keys, cols int) {
	rows := queries * p.Heads
	most := max(1, pagedWork/(PagedTokens*rows*max(cols, 1))) * PagedTokens
	for keys > 0 {
		n := min(keys, most)
		if first > 0 {
			n = min(keys, PagedTokens-first)
		}
		y.check(rows, ceil(cols, BlockColumns)*BlockColumns)
		w.check(rows, n)
		p.check(pages[:ceil(first+n, PagedTokens)], cols)
		s.pager.weigh(y, w, queries, p, pages, first, n, cols)
		pages, keys, first = pages[(first+n)/PagedTokens:], keys-n, 0
		if keys > 0 {
			w.V = w.V[n:]
		}
	}
}

// check panics where a page is not all there.
func (p *Paged) check(pages []int32, n int) {
	for _, page := range pages {
		_ = p.Data[int(page)*p.Page+(p.Heads-1)*p.Head+(PagedTokens-1)*p.Row+p.bytes(n)-1]
	}
}
