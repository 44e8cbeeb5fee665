//go:build cuda

package cuda

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// The formats of values, with the numbers of weights.h.
const (
	formatBF16 = iota
	formatF16
	formatF32
	formatQ8
	formatQ4
	formatQ4K
	formatQ6K
	formatE4M3
	formatMXFP4
)

// formatOf returns the number of a dense dtype.
func formatOf(d meta.DType) (format uint64, ok bool) {
	switch d {
	case meta.BFloat16:
		return formatBF16, true
	case meta.Float16:
		return formatF16, true
	case meta.Float32:
		return formatF32, true
	}
	return 0, false
}

func sizeOf(format uint64) int {
	if format == formatF32 {
		return 4
	}
	return 2
}

// blocks are the formats whose rows are blocks that contain their scales.
var blocks = map[meta.QuantFormat]uint64{meta.QuantQ8: formatQ8, meta.QuantQ4: formatQ4, meta.QuantQ4K: formatQ4K, meta.QuantQ6K: formatQ6K}

// coded are the formats whose rows are codes, with the scales in a separate tensor.
var coded = map[meta.QuantFormat]uint64{meta.QuantFP8: formatE4M3, meta.QuantMXFP4: formatMXFP4}

// matrix is a float32 matrix on the GPU: its address, and the stride of its rows in elements.
type matrix struct{ at, stride uint64 }

// row returns the matrix that starts at row i.
func (m matrix) row(i int) matrix { return matrix{m.at + 4*m.stride*uint64(i), m.stride} }

func (b *Backend) matrix(op, name string, t tensor.Tensor, rows, cols int) matrix {
	if t.DType != meta.Float32 || t.Rank == 0 || t.Rows() != rows || t.Cols() != cols || t.RowStride() < cols || t.Data != nil || t.Address%4 != 0 ||
		rows > 0 && !b.holds(t.Address, 4*((rows-1)*t.RowStride()+cols)) {
		b.fail("%s: %s is %v %v, not float32 [%d %d] of the GPU", op, name, t.DType, t.Shape(), rows, cols)
	}
	return matrix{uint64(t.Address), uint64(t.RowStride())}
}

// vector is an optional dense vector: its address, the stride of its elements in bytes, and its
// format.
type vector struct {
	at, step, format uint64
	n                int
}

// vector checks that t is absent or has n or `or` elements.
func (b *Backend) vector(op, name string, t tensor.Tensor, n, or int) vector {
	if t.IsZero() {
		return vector{}
	}
	format, ok := formatOf(t.DType)
	stride, count := 1, t.Elements()
	if t.Rank == 1 {
		stride = max(t.Stride, 1)
	}
	if !ok || count != n && count != or || t.Data != nil || t.Rank > 1 && t.RowStride() != t.Cols() || !b.holds(t.Address, ((count-1)*stride+1)*sizeOf(format)) {
		b.fail("%s: %s is %v %v, not %d floats of the GPU", op, name, t.DType, t.Shape(), n)
	}
	return vector{uint64(t.Address), uint64(stride * sizeOf(format)), format, count}
}

// dense is like vector, for kernels that require contiguous elements.
func (b *Backend) dense(op, name string, t tensor.Tensor, n, or int) vector {
	v := b.vector(op, name, t, n, or)
	if v.at != 0 && v.step != uint64(sizeOf(v.format)) {
		b.fail("%s: elements of %s lie %d bytes apart", op, name, v.step)
	}
	return v
}

// weight is a stored matrix: the arguments of a Weight of weights.h, and the shape of the logical
// matrix.
type weight struct {
	at, format, stride, row, col, step, transposed         uint64
	scales, scaleFormat, scaleStride, blockRows, blockCols uint64
	rows, cols                                             int
	ascending                                              bool // see backend.Quant
}

// inCodes reports whether the CPU multiplies the codes of w before it applies their scales.
// kernelLinearCodes sums in that order; see qgemm.HasMinifloat.
func (w *weight) inCodes() bool {
	const block = 32
	whole := w.transposed == 0 && w.col == 0 && w.cols > 0 && w.cols%block == 0
	return whole && (w.format == formatMXFP4 || w.format == formatE4M3 && (int(w.blockCols) >= w.cols || w.blockCols%block == 0))
}

func (b *Backend) weight(op string, m backend.Matrix) (weight, bool) {
	w := weight{at: uint64(m.Address), step: uint64(max(m.RowStep, 1)), rows: m.OutRows(), cols: m.InCols()}
	if m.Transposed {
		w.transposed = 1
	}
	ok := m.Rank == 2 && m.Data == nil
	if m.Quant != nil {
		ok = ok && m.Quant.Height == 0 && m.Row >= 0 && m.Col >= 0 && m.Col+m.Dims[1] <= m.Quant.Width && b.quantised(&w, m)
	} else {
		format, known := formatOf(m.DType)
		size := sizeOf(format)
		rows, cols := m.Dims[0], m.Dims[1] // as stored, up to the last row of the step
		if m.RowStep > 1 && m.Transposed {
			cols = (w.rows-1)*m.RowStep + 1
		} else if m.RowStep > 1 {
			rows = (w.rows-1)*m.RowStep + 1
		}
		ok = ok && known && (m.Elements() == 0 || b.holds(m.Address, ((rows-1)*m.RowStride()+cols)*size))
		w.format, w.stride = format, uint64(m.RowStride()*size)
	}
	if !ok {
		stored := m.DType.String()
		if m.Quant != nil {
			stored = m.Quant.Format.String()
		}
		b.fail("%s: weight %v stored as %s cannot be used by the GPU", op, m.Shape(), stored)
	}
	return w, b.err == nil
}

// quantised sets the fields of w that depend on the format of m. It reports whether the bytes are
// on the GPU.
func (b *Backend) quantised(w *weight, m backend.Matrix) bool {
	q := m.Quant
	w.row, w.col, w.ascending = uint64(m.Row), uint64(m.Col), q.Ascending && !m.Transposed
	stride, _, _, _ := q.Entries(1, q.Width) // bytes
	whole := q.Format.Row().Divides(q.Width)
	if format, ok := blocks[q.Format]; ok {
		w.format, w.stride = format, uint64(stride)
		return whole && b.holds(m.Address, (m.Row+m.Dims[0])*stride)
	}
	format, ok := coded[q.Format]
	if !ok || !whole || q.Rows <= 0 || q.Columns <= 0 || q.Scales.Data != nil {
		return false
	}
	scales, size := ceil(q.Width, q.Columns), 1
	if format == formatE4M3 {
		if w.scaleFormat, ok = formatOf(q.Scales.DType); !ok {
			return false
		}
		size = sizeOf(w.scaleFormat)
	}
	w.format, w.stride, w.scales, w.scaleStride = format, uint64(stride), uint64(q.Scales.Address), uint64(scales)
	w.blockRows, w.blockCols = uint64(q.Rows), uint64(q.Columns)
	return b.holds(m.Address, (m.Row+m.Dims[0])*stride) && b.holds(q.Scales.Address, ceil(m.Row+m.Dims[0], q.Rows)*scales*size)
}

// Supports reports whether the GPU has kernels for the format of m.
func (b *Backend) Supports(m backend.Matrix) bool {
	if m.Quant != nil {
		_, ok := blocks[m.Quant.Format]
		if _, apart := coded[m.Quant.Format]; apart {
			scales := m.Quant.Scales.DType // the zero dtype if no header has been read yet
			_, known := formatOf(scales)
			ok = m.Quant.Format == meta.QuantMXFP4 || known || m.Quant.Scales.IsZero()
		}
		return ok && m.Quant.Height == 0
	}
	_, ok := formatOf(m.DType)
	return ok
}

// inside checks that the indices of an operation are in [0, n).
func (b *Backend) inside(op string, indices []int32, n int) {
	for i, v := range indices {
		if v < 0 || int(v) >= n {
			b.fail("%s: index %d is %d of %d", op, i, v, n)
			return
		}
	}
}

// word returns the bits of a float as an argument of a kernel.
func word(x float32) uint64 { return uint64(math.Float32bits(x)) }

func flag(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// ceil returns a/n, rounded up.
func ceil(a, n int) int { return (a + n - 1) / n }
