package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Quant is what turns the codes of a quantised [Matrix] into values.
type Quant struct {
	*meta.Quant
	// Scales, Zeros and Index are as the checkpoint stores them; absent where the
	// format has none.
	Scales, Zeros, Index tensor.Tensor
	// Width is the columns of the stored matrix.
	Width int
	// Height is the rows of a stored matrix of QuantQ8 or QuantQ4 in bands, the order that
	// kernels.Packed describes; 0 where it lies in rows, as in a file.
	Height int
}

// CutRows is the view of stored rows [begin, end).
func (m Matrix) CutRows(begin, end int) Matrix {
	if m.Quant == nil {
		m.Tensor = m.Slice(begin, end)
		return m
	}
	m.Row += begin
	m.Dims[0] = end - begin
	return m
}

// CutColumns is the view of stored columns [begin, end).
func (m Matrix) CutColumns(begin, end int) Matrix {
	if m.Quant == nil {
		m.Tensor = m.Columns(begin, end)
		return m
	}
	m.Col += begin
	m.Dims[1] = end - begin
	return m
}
