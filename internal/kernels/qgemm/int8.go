package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// Activations are rounded to 8 bits in blocks of 32, like the weights of Q8 and Q4: signed codes
// with a scale that makes the largest magnitude 127. The product with a block of interleaved
// weights is an exact sum of integers, times both scales. The sum of a row adds these in
// ascending order of the blocks with fused multiply-add. All variants that have such products
// compute the same bits, for any number of rows and tokens.

// integers is implemented by variants that multiply 8-bit integers. The caller has checked
// bounds.
type integers interface {
	// words returns the length in words of a block of activations: its codes, the scale, and the
	// sum of its codes times the offset of the weights' codes.
	words(p quant.Packing) int
	narrow(p quant.Packing, dst []uint32, src []float32)
	// mul computes the rows of whole bands, which begin apart bytes apart.
	mul(p quant.Packing, y mat.Floats, w []byte, apart, bands int, x mat.Pairs, tokens, blocks int, add bool)
	// edge computes the lanes lane, lane+step, … of a band of the given number of rows, for one
	// token.
	edge(p quant.Packing, y []float32, w []byte, rows, lane, step int, x []uint32, blocks int, add bool)
	// stored computes StoredRows rows that are not interleaved and begin stride bytes apart, for one
	// token.
	stored(p quant.Packing, y []float32, w []byte, stride int, x []uint32, blocks int)
}

// HasInt8 reports whether the variant implements RoundInt8 and MulInt8.
func (s *Kernels) HasInt8() bool { return s.integers != nil }

// Int8Words returns the length in words of a row of n rounded activations, a multiple of 32, for
// products with weights of p.
func (s *Kernels) Int8Words(p quant.Packing, n int) int {
	return n / quant.BlockColumns * s.integers.words(p)
}

// RoundInt8 rounds src, whole blocks, to 8 bits for products with weights of p. A block with a
// value that is not finite becomes NaN.
func (s *Kernels) RoundInt8(p quant.Packing, dst []uint32, src []float32) {
	if len(src) > 0 {
		s.integers.narrow(p, dst[:s.Int8Words(p, len(src))], src)
	}
}

// MulInt8 sets y[t][i] to the dot product of x[t], which RoundInt8 rounded, and row i of w, a
// view of an interleaved matrix. The number of columns and the first column of w are multiples of
// 32. If add is set, the sums continue from y. A sum has the same bits however it is divided into
// calls.
func (s *Kernels) MulInt8(y mat.Floats, w quant.View, x mat.Pairs, tokens int, add bool) {
	p, row, step, col, rows, n := w.Packed, w.Row, w.Step, w.Col, w.Rows, w.Cols
	if rows <= 0 || tokens <= 0 || n <= 0 {
		return
	}
	y.Check(tokens, rows)
	_ = x.V[:(tokens-1)*x.Stride+s.Int8Words(p.Packing, n)]
	blocks := n / quant.BlockColumns
	for i := 0; i < rows; {
		at, to := rowRunOf(p, row+i*step, step, col, rows-i, blocks), from(y, i)
		if at.bands > 0 {
			s.integers.mul(p.Packing, to, at.w, apart(p), at.bands, x, tokens, blocks, add)
		} else {
			for t := range tokens {
				s.integers.edge(p.Packing, to.V[t*y.Stride:][:at.rows], at.w, at.height, at.lane, step, x.V[t*x.Stride:], blocks, add)
			}
		}
		i += at.rows
	}
}
