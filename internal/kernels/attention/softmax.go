package attention

import (
	"math"

	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// With rounded operands, attention of prompts processes the keys in blocks. [Kernels.Couple]
// computes the scores of 32 queries from packed keys, one row per key. [Kernels.Softmax] turns
// scores into weights, rounded to bfloat16, and returns the factors that rescale the earlier
// sums. Couple then adds the weighted values, which [Kernels.PackTransposed] packed. The largest
// score, the sum and the result of a query are updated block by block in one order. They depend
// only on the keys that the query sees and on where blocks begin.

// Online is the state of an online softmax for 16 queries. Each query sees Count keys from
// position First on.
type Online struct {
	Top    [gemm.PanelTokens]float32 // the largest score so far, times log2 e; initially −Inf
	Sum    [gemm.PanelTokens]float32 // the sum of the weights 2^(score − Top)
	Factor [gemm.PanelTokens]float32 // the factor by which earlier sums must be multiplied, set by Softmax
	First  [gemm.PanelTokens]int32
	Count  [gemm.PanelTokens]int32
}

// Reset sets the state to that before the first key, for queries that see no key yet.
func (o *Online) Reset() {
	*o = Online{}
	for i := range o.Top {
		o.Top[i] = float32(math.Inf(-1))
	}
}

// whole reports whether all queries see all of the keys from position base on.
func (o *Online) whole(base, keys int) bool {
	for i, first := range o.First {
		if base < int(first) || base+keys > int(first+o.Count[i]) {
			return false
		}
	}
	return true
}

// Softmax turns the scores c[key][query] of a block of keys into weights and packs them in a
// panel at p. The block begins at position base and has a multiple of 32 keys. A weight is
// 2^(score·by), scaled to the largest score; by includes log2 e. A key that a query does not see
// has weight 0. Sums add up the rounded weights.
func (s *Kernels) Softmax(p []uint32, c mat.Floats, keys, base int, by float32, o *Online) {
	if keys <= 0 {
		return
	}
	c.Check(keys, gemm.PanelTokens)
	s.rounder.softmax(p[:keys/2*gemm.PanelTokens], c, keys, base, by, o, o.whole(base, keys))
}

// ScaleLanes multiplies column i of the first rows of x by by[i], for i < 16.
func (s *Kernels) ScaleLanes(x mat.Floats, rows int, by *[gemm.PanelTokens]float32) {
	if rows > 0 {
		x.Check(rows, gemm.PanelTokens)
		s.rounder.scaleLanes(x, rows, by)
	}
}

// PackTransposed packs two blocks of 16 rows with cols bfloat16 elements each, transposed:
// columns become the rows of packs. Packs begin apart words apart and are padded with zeros to an
// even number. It reports whether all elements are finite.
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

// rounder is implemented by variants that round operands to bfloat16. The caller has checked
// bounds.
type rounder interface {
	softmax(p []uint32, c mat.Floats, keys, base int, by float32, o *Online, whole bool)
	scaleLanes(x mat.Floats, rows int, by *[gemm.PanelTokens]float32)
	packTurned(dst []uint32, apart int, w, next mat.Weights, cols int) (finite bool)
	narrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int)
}
