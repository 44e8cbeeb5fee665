package qgemm

import "github.com/heftai/heft/internal/kernels/quant"

// Rows of blocks as they are stored, not interleaved, are multiplied by one token without a copy:
// to interleave them first takes longer than to read them. Eight rows are eight lanes. The sums of a
// block are the same integers, and are scaled and added in the same order, so products have the bits
// of MulInt8.

// StoredRows is the least number of rows that MulInt8Stored multiplies.
const StoredRows = 8

// MulInt8Stored sets y[i] to the dot product of x, which RoundInt8 rounded, and row i of w, a view
// of a matrix stored by rows. It has at least StoredRows rows. Their number of columns and the first
// column are multiples of 32.
func (s *Kernels) MulInt8Stored(y []float32, w quant.View, x []uint32) {
	p, blocks, size := w.Packed, w.Cols/quant.BlockColumns, w.Packed.Packing.BlockBytes()
	stride := p.Width / quant.BlockColumns * size
	first := p.Codes[w.Row*stride+w.Col/quant.BlockColumns*size:]
	apart := w.Step * stride
	_, _, _ = y[:w.Rows], x[:s.Int8Words(p.Packing, w.Cols)], first[:(w.Rows-1)*apart+blocks*size]
	for i := 0; i < w.Rows; i += StoredRows {
		r := min(i, w.Rows-StoredRows) // the last may overlap others, which become the same again
		s.integers.stored(p.Packing, y[r:r+StoredRows], first[r*apart:], apart, x, blocks)
	}
}
