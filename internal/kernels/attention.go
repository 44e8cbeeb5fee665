package kernels

import "math"

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
