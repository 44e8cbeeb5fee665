package qgemm

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// Interleaved weights are multiplied by floats. Each element of a product is one sum in ascending
// order of the columns, the same as that of [gemm.Kernels.SumPanels] with the values as float32.
// Small batches read the interleaved blocks in place, and large batches read panels of
// dequantised blocks.

// summer is implemented by each variant for such products. The caller has checked bounds.
type summer interface {
	bandTokens() int
	// sumBands computes the rows of whole bands, which begin apart bytes apart.
	sumBands(p quant.Packing, y mat.Floats, w []byte, apart, bands int, x mat.Floats, tokens, blocks int, add bool)
	// sumEdge computes the lanes lane, lane+step, … of a band of the given number of rows, for
	// one token.
	sumEdge(p quant.Packing, y []float32, w []byte, rows, lane, step int, x []float32, blocks int, add bool)
	// panelBand fills a panel with rows of a whole band from row lane on.
	panelBand(p quant.Packing, dst []float32, band []byte, lane, blocks int)
}

// InterleavedTokens returns the number of tokens up to which MulInterleaved is faster than
// dequantising the weights first.
func (s *Kernels) InterleavedTokens() int { return s.ops.bandTokens() }

// MulInterleaved sets y[t][i] to the dot product of token x[t] and row i of w, a view of an
// interleaved matrix. The numbers of columns and the first column of w are multiples of 32. If
// add is set, the sums continue from y. A sum has the same bits however it is divided into calls.
func (s *Kernels) MulInterleaved(y mat.Floats, w quant.View, x mat.Floats, tokens int, add bool) {
	p, row, step, col, rows, n := w.Packed, w.Row, w.Step, w.Col, w.Rows, w.Cols
	if rows <= 0 || tokens <= 0 || n <= 0 {
		return
	}
	y.Check(tokens, rows)
	x.Check(tokens, n)
	blocks := n / quant.BlockColumns
	for i := 0; i < rows; {
		at, to := rowRunOf(p, row+i*step, step, col, rows-i, blocks), from(y, i)
		if at.bands > 0 {
			s.ops.sumBands(p.Packing, to, at.w, apart(p), at.bands, x, tokens, blocks, add)
		} else {
			for t := range tokens {
				s.ops.sumEdge(p.Packing, to.V[t*y.Stride:][:at.rows], at.w, at.height, at.lane, step, x.V[t*x.Stride:][:n], blocks, add)
			}
		}
		i += at.rows
	}
}

// WidenInterleaved fills a panel with rows of w, a view of an interleaved matrix, as WidenColumns
// does. The number of columns and the first column of w are multiples of 32. It returns false and
// does nothing if the rows are not adjacent in a whole band.
func (s *Kernels) WidenInterleaved(dst []float32, w quant.View) bool {
	p, row, step, col, rows, n := w.Packed, w.Row, w.Step, w.Col, w.Rows, w.Cols
	lanes := s.gemm.PanelLanes()
	at, height, lane := p.Band(row, col)
	if step != 1 || rows < lanes || lane%lanes != 0 || height != quant.InterleavedRows {
		return false
	}
	if blocks := n / quant.BlockColumns; blocks > 0 {
		s.ops.panelBand(p.Packing, dst[:n*lanes], p.Codes[at:at+blocks*quant.InterleavedRows*p.Packing.BlockBytes()], lane, blocks)
	}
	return true
}

// from returns the columns of m from col on.
func from(m mat.Floats, col int) mat.Floats { return mat.Floats{V: m.V[col:], Stride: m.Stride} }

func (goOps) bandTokens() int { return 1 }

func (o goOps) sumBands(p quant.Packing, y mat.Floats, w []byte, apart, bands int, x mat.Floats, tokens, blocks int, add bool) {
	for b := range bands {
		for t := range tokens {
			o.sumEdge(p, y.V[t*y.Stride+b*quant.InterleavedRows:][:quant.InterleavedRows], w[b*apart:], quant.InterleavedRows, 0, 1, x.V[t*x.Stride:], blocks, add)
		}
	}
}

func (goOps) sumEdge(p quant.Packing, y []float32, w []byte, rows, lane, step int, x []float32, blocks int, add bool) {
	each := rows * p.BlockBytes()
	var values [quant.BlockColumns]float32
	for i := range y {
		sum := float32(0)
		if add {
			sum = y[i]
		}
		for b := range blocks {
			quant.UnpackInterleaved(p, values[:], w[b*each:][:each], rows, lane+i*step)
			for k, v := range values {
				sum += float32(v * x[b*quant.BlockColumns+k])
			}
		}
		y[i] = sum
	}
}

func (goOps) panelBand(p quant.Packing, dst []float32, band []byte, lane, blocks int) {
	each := quant.InterleavedRows * p.BlockBytes()
	var values [quant.BlockColumns]float32
	for b := range blocks {
		for i := range gemm.GoPanelLanes {
			quant.UnpackInterleaved(p, values[:], band[b*each:][:each], quant.InterleavedRows, lane+i)
			for k, v := range values {
				dst[(b*quant.BlockColumns+k)*gemm.GoPanelLanes+i] = v
			}
		}
	}
}
