package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// Rows of the blocks of GGUF files stay as they are stored. Activations are rounded to signed codes of eight bits
// in blocks of 32, whose scale makes the largest magnitude 127. One layout serves the blocks of all these formats:
// for 256 columns the codes, eight scales, eight sums of codes times their scale, and 16 sums of 16 codes.
//
// A product of a row has eight sums. Sum i adds, in ascending order of the blocks of 32 columns and with fused
// multiply-add, the exact sum of the products of codes 4i to 4i+3 times the scales. Least values, and what codes
// are too large by, are multiplied by the sums of codes and added apart, for 256 columns at a time or for 32 in
// ascending order. The sums are folded in halves. All variants have the same bits, for any number of tokens.

// A rower is what a variant implements for that. Bounds have been checked.
type rower interface {
	narrowRows(dst []uint32, src []float32)
	// mulRows sets y[i] to the product of a token with the row of blocks blocks at byte i·stride.
	mulRows(p quant.Packing, y []float32, w []byte, stride, blocks int, x []uint32)
}

// Sizes of a token's columns.
const (
	rowsColumns = 256
	rowsWords   = (256 + 32 + 32 + 32) / 4
)

// HasRows reports whether the variant has RoundRows and MulRows for n columns of p from column col on: p is not
// interleaved, and the columns are whole blocks from the first.
func (s *Kernels) HasRows(p *quant.Packed, col, n int) bool {
	return s.rower != nil && p.Packing.HasRows() && p.Height == 0 && col == 0 && n > 0 && n%p.Packing.BlockColumns() == 0
}

// RowsWords is the length in words of n activations, a multiple of 32, that RoundRows rounds.
func RowsWords(n int) int { return mat.CeilDiv(n, rowsColumns) * rowsWords }

// RoundRows rounds src, whole blocks of 32 columns. A block with a value that is not finite becomes NaN.
func (s *Kernels) RoundRows(dst []uint32, src []float32) {
	if len(src) > 0 {
		s.rower.narrowRows(dst[:RowsWords(len(src))], src)
	}
}

// MulRows sets y[t][i] to the product of x[t], which RoundRows rounded, with row i of w, for which HasRows holds, for
// t < tokens. Rows stay in the first-level cache while tokens pass, a few at a time.
func (s *Kernels) MulRows(y mat.Floats, w quant.View, x mat.Pairs, tokens int) {
	if w.Rows <= 0 || tokens <= 0 || w.Cols <= 0 {
		return
	}
	y.Check(tokens, w.Rows)
	_ = x.V[:(tokens-1)*x.Stride+RowsWords(w.Cols)]
	blocks := w.Cols / w.Packing.BlockColumns()
	used, stride := blocks*w.Packing.BlockBytes(), w.RowBytes()
	codes := w.Codes[w.Row*stride : (w.Row+(w.Rows-1)*w.Step)*stride+used]
	stride *= w.Step
	part := w.Rows
	if tokens > 1 {
		part = rowsAtOnce
	}
	for i := 0; i < w.Rows; i += part {
		n := min(part, w.Rows-i)
		for t := range tokens {
			s.rower.mulRows(w.Packing, y.V[t*y.Stride+i:][:n], codes[i*stride:], stride, blocks, x.V[t*x.Stride:])
		}
	}
}

// rowsAtOnce is how many rows pass several tokens at a time: a multiple of what all kernels take at once.
const rowsAtOnce = 8
