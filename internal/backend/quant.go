package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Quant holds what is needed to dequantise the codes of a [Matrix].
type Quant struct {
	*meta.Quant
	// Scales, Zeros, Index and Global are as the checkpoint stores them. They are absent if the
	// format has none.
	Scales, Zeros, Index, Global tensor.Tensor
	// Width is the number of columns of the stored matrix.
	Width int
	// Height is the number of rows of a stored matrix of QuantQ8 or QuantQ4 whose rows are
	// interleaved, as quant.Packed describes. It is 0 for a matrix that is stored row by row, as
	// in a file.
	Height int
	// Ascending is set for a converted matrix that is stored row by row. Products that do not
	// round then add the columns in ascending order, as for interleaved rows.
	Ascending bool
}

// Holds reports whether data, the codes of q, and its scales, zeros and index have the given
// number of rows of Width columns. It does not allocate. It does not check that the groups of an
// index exist; operations do.
func (q *Quant) Holds(data []byte, rows int) bool {
	if q.Height > 0 {
		if q.Height < rows {
			return false
		}
		rows = q.Height
	}
	row := q.Format.Row()
	if !row.Divides(q.Width) {
		return false
	}
	codes, _, _, index := q.Entries(rows, q.Width)
	groups := rows
	if q.Index.Data != nil && row.Layout == meta.InputsFirst { // groups of rows, whose number is unknown
		groups = 1
	}
	_, scales, zeros, _ := q.Entries(groups, q.Width)
	has := func(t tensor.Tensor, n int) bool { return int64(len(t.Data)) >= t.DType.Bytes(int64(n)) }
	return int64(len(data)) >= row.Codes.DTypes[0].Bytes(int64(codes)) && (scales == 0 || has(q.Scales, scales)) &&
		(zeros == 0 || q.Zeros.Data == nil && row.Zeros.Optional || has(q.Zeros, zeros)) && (q.Index.Data == nil || has(q.Index, index)) &&
		(!row.NeedsGlobal() || has(q.Global, 1))
}

// CutRows returns the view of stored rows [begin, end).
func (m Matrix) CutRows(begin, end int) Matrix {
	if m.Quant == nil {
		m.Tensor = m.Slice(begin, end)
		return m
	}
	m.Row += begin
	m.Dims[0] = end - begin
	return m
}

// CutColumns returns the view of stored columns [begin, end).
func (m Matrix) CutColumns(begin, end int) Matrix {
	if m.Quant == nil {
		m.Tensor = m.Columns(begin, end)
		return m
	}
	m.Col += begin
	m.Dims[1] = end - begin
	return m
}
