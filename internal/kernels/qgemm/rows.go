package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// Rows of GGUF blocks are multiplied as stored. Activations are rounded to signed 8-bit codes in
// blocks of 32, whose scale makes the largest magnitude 127. One layout serves the blocks of all
// these formats: for every 256 columns the codes, eight scales, eight sums of codes times their
// scale, and 16 sums of 16 codes.
//
// A product of a row has eight sums. Sum i adds, in ascending order of the blocks of 32 columns
// and with fused multiply-add, the exact sum of the products of codes 4i to 4i+3 times the
// scales. Minima, and offsets of the weights' codes, are multiplied by the sums of codes and
// added separately, every 256 columns or every 32 columns in ascending order. The sums are folded
// in halves. All variants compute the same bits, for any number of tokens.

// A rower is implemented by variants for such products. The caller has checked bounds.
type rower interface {
	narrowRows(dst []uint32, src []float32)
	// mulRows sets y[i] to the dot product of a token and the row of blocks blocks at byte
	// i·stride.
	mulRows(p quant.Packing, y []float32, w []byte, stride, blocks int, x []uint32)
	// mulTokens sets y[t][i] to the dot products of rows with the first done tokens, those for which
	// there are kernels of several tokens.
	mulTokens(p quant.Packing, y mat.Floats, w []byte, stride, blocks, rows int, x mat.Pairs, tokens int) (done int)
}

// The sizes of a group of a token's columns.
const (
	rowsColumns = 256
	rowsWords   = (256 + 32 + 32 + 32) / 4
)

// HasRows reports whether the variant implements RoundRows and MulRows for n columns of p from
// column col on. It returns false if p is interleaved or the columns are not whole blocks.
func (s *Kernels) HasRows(p *quant.Packed, col, n int) bool {
	return s.rower != nil && p.Packing.HasRows() && p.Height == 0 && col == 0 && n > 0 && n%p.Packing.BlockColumns() == 0
}

// RowsWords returns the length in words of n rounded activations, a multiple of 32.
func RowsWords(n int) int { return mat.CeilDiv(n, rowsColumns) * rowsWords }

// RoundRows rounds src, whole blocks of 32 columns, to 8 bits. A block with a value that is not
// finite becomes NaN.
func (s *Kernels) RoundRows(dst []uint32, src []float32) {
	if len(src) > 0 {
		s.rower.narrowRows(dst[:RowsWords(len(src))], src)
	}
}

// MulRows sets y[t][i] to the dot product of x[t], which RoundRows rounded, and row i of w, for t
// < tokens. HasRows must be true for w. A few rows at a time stay in the first-level cache while
// all tokens are multiplied by them.
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
		for t := s.rower.mulTokens(w.Packing, from(y, i), codes[i*stride:], stride, blocks, n, x, tokens); t < tokens; t++ {
			s.rower.mulRows(w.Packing, y.V[t*y.Stride+i:][:n], codes[i*stride:], stride, blocks, x.V[t*x.Stride:])
		}
	}
}

// rowsAtOnce is the number of rows multiplied by all tokens at a time: a multiple of the rows
// that any kernel computes at once.
const rowsAtOnce = 8
