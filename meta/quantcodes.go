package meta

import "slices"

// A Quant describes a source whose tensor holds codes, and names the tensors that complete it.
// Rows and columns refer to the matrix as it is stored, which is [inputs, outputs] for QuantGPTQ
// and QuantAWQ.
type Quant struct {
	Format QuantFormat
	// Scales, Zeros, Index and Global name tensors in the way Source.Tensor does. A name is "" if
	// the format has no such tensor.
	Scales, Zeros, Index string
	Global               string // one number for the whole matrix
	ScaleDType           DType
	// Rows × Columns elements share a scale.
	Rows, Columns int
	// ZeroWords are added to the stored words of zeros of GPTQ's formats, modulo 2^32:
	// ZeroWords[i%3] to word i of a group.
	ZeroWords [3]uint32
	// For formats whose codes are one list, Width is the number of columns of the matrix, State
	// the size in bytes of its Global (the maximum in a stack), and States the total in the
	// stack, 0 if unknown. They are 0 for other formats.
	Width, State, States int
}

// Entries returns the number of elements of each of the format's tensors for a matrix of rows ×
// columns, 0 for tensors that the format does not have. Global has one. Entries does not
// allocate.
func (q *Quant) Entries(rows, columns int) (codes, scales, zeros, index int) {
	row := q.Format.Row()
	p := &row.Codes
	codes = ceil(rows, p.Rows) * ceil(columns, p.Columns) * max(p.Words, 1) * max(p.Bytes, 1)
	return codes, row.Scales.entries(q, rows, columns), row.Zeros.entries(q, rows, columns), row.Index.entries(q, rows, columns)
}

func (c *Companion) entries(q *Quant, rows, columns int) int {
	if !c.exists() {
		return 0
	}
	n, m := c.size(q, rows, columns)
	return n * max(m, 1)
}

// Matrix returns the shape of the matrix whose tensor of codes has the given shape: the inverse
// of [TensorSource.Stored].
func (q *Quant) Matrix(codes []int) []int {
	p := &q.Format.Row().Codes
	n := len(codes)
	if p.Bytes > 0 && n >= 3 {
		n--
	}
	shape := slices.Clone(codes[:n])
	if p.Flat && n >= 2 {
		shape[n-2], shape[n-1] = shape[n-2]*p.Columns/max(q.Width, 1), q.Width
	} else if n >= 2 {
		shape[n-2] = shape[n-2] / max(p.Words, 1) * p.Rows
		shape[n-1] *= p.Columns
	}
	return shape
}

func ceil(a, b int) int { return (a + b - 1) / max(b, 1) }
