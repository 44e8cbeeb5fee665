package attention

import (
	"math"

	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// Attention of prompts with rounded operands processes the keys in blocks. [Kernels.Couple]
// computes the scores of 32 queries from packed keys, one row per key. [Kernels.Softmax] turns them
// into weights, rounded to bfloat16, and returns the factors by which the earlier sums shrink.
// Couple then adds the weighted values, which [Kernels.PackTransposed] packed. A query's largest
// score, sum and result change with each block in one order, so they depend only on the keys that
// it sees and on where blocks begin.

// Online is the state of 16 queries, of which each sees Count keys from position First on.
type Online struct {
	Top    [gemm.PanelTokens]float32 // the largest score so far, times log2 e; −Inf in the beginning
	Sum    [gemm.PanelTokens]float32 // of the weights, 2^(score − Top)
	Factor [gemm.PanelTokens]float32 // what Softmax wants sums so far to be multiplied by
	First  [gemm.PanelTokens]int32
	Count  [gemm.PanelTokens]int32
}

// Reset sets the state before the first key, of queries that see none yet.
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

// Softmax turns scores, c[key][query] of keys from position base on, a multiple of 32 of them, into
// a panel of weights at p: a score times by, which includes log2 e, is an exponent of 2. A key that
// a query does not see has weight 0. The sum is that of the rounded weights.
func (s *Kernels) Softmax(p []uint32, c mat.Floats, keys, base int, by float32, o *Online) {
	if keys <= 0 {
		return
	}
	c.Check(keys, gemm.PanelTokens)
	s.rounder.softmax(p[:keys/2*gemm.PanelTokens], c, keys, base, by, o, o.whole(base, keys))
}

// ScaleLanes multiplies column i < 16 of some rows by by[i].
func (s *Kernels) ScaleLanes(x mat.Floats, rows int, by *[gemm.PanelTokens]float32) {
	if rows > 0 {
		x.Check(rows, gemm.PanelTokens)
		s.rounder.scaleLanes(x, rows, by)
	}
}

// PackTransposed packs two times 16 rows of cols numbers of bfloat16: columns become the rows of
// packs, which are apart words apart, padded with zeros to a multiple of two packs. It reports
// whether all numbers are finite.
func (s *Kernels) PackTransposed(dst []uint32, apart int, w, next mat.Weights, cols int) (finite bool) {
	if cols <= 0 {
		return true
	}
	packs := mat.CeilDiv(cols, 2*gemm.PackRows) * 2
	_ = dst[:(packs-1)*apart+gemm.BlockK/2*gemm.PackRows]
	w.Check(gemm.PackRows, cols)
	next.Check(gemm.PackRows, cols)
	return s.rounder.packTurned(dst, apart, w, next, cols)
}

// rounder is implemented by variants with operands rounded to bfloat16. The caller has checked
// bounds.
type rounder interface {
	softmax(p []uint32, c mat.Floats, keys, base int, by float32, o *Online, whole bool)
	scaleLanes(x mat.Floats, rows int, by *[gemm.PanelTokens]float32)
	packTurned(dst []uint32, apart int, w, next mat.Weights, cols int) (finite bool)
	narrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int)
}
