package cpu

import (
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// format returns the kernels' format for a dtype.
func format(d meta.DType) (mat.Format, bool) {
	switch d {
	case meta.BFloat16:
		return mat.BFloat16, true
	case meta.Float16:
		return mat.Float16, true
	case meta.Float32:
		return mat.Float32, true
	}
	return 0, false
}

func address(data []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(data))) }

// floats checks that t is a float32 matrix [rows, cols] of op and returns it.
func (b *Backend) floats(op, name string, t tensor.Tensor, rows, cols int) (mat.Floats, bool) {
	if !b.isMatrix(op, name, t, meta.Float32, rows, cols) {
		return mat.Floats{}, false
	}
	return mat.Floats{V: t.F32(), Stride: t.RowStride()}, true
}

// isMatrix checks that t is a matrix [rows, cols] of op with a dtype whose elements take whole
// bytes.
func (b *Backend) isMatrix(op, name string, t tensor.Tensor, dtype meta.DType, rows, cols int) bool {
	stride, size := t.RowStride(), dtype.Bits()/8
	switch {
	case t.DType != dtype || t.Rank == 0 || t.Rows() != rows || t.Cols() != cols || stride < cols:
		b.fail("%s: %s is %v %v, not %v [%d %d]", op, name, t.DType, t.Shape(), dtype, rows, cols)
	case rows > 0 && len(t.Data) < size*((rows-1)*stride+cols):
		b.fail("%s: %s has %d bytes for %v", op, name, len(t.Data), t.Shape())
	case address(t.Data)%uintptr(size) != 0:
		b.fail("%s: %s is at an odd address", op, name)
	default:
		return true
	}
	return false
}

// wanted is an operand [rows, cols] and the place for its numbers.
type wanted struct {
	to   *mat.Floats
	name string
	from tensor.Tensor
	cols int
}

// allFloats is floats for several operands of op with the same rows.
func (b *Backend) allFloats(op string, rows int, list ...wanted) (ok bool) {
	for i := range list {
		w := &list[i]
		if *w.to, ok = b.floats(op, w.name, w.from, rows, w.cols); !ok {
			return false
		}
	}
	return true
}

// allOptional is allFloats for operands that may be absent; see optional.
func (b *Backend) allOptional(op string, rows int, list ...wanted) (ok bool) {
	for i := range list {
		w := &list[i]
		if *w.to, ok = b.optional(op, w.name, w.from, rows, w.cols); !ok {
			return false
		}
	}
	return true
}

// cutter is memory from which parts are allocated in order.
type cutter []float32

func (c *cutter) take(n int) []float32 {
	part := (*c)[:n]
	*c = (*c)[n:]
	return part
}

// matrix is a weight for the kernels. Element (r, c) of the logical matrix is in row r, column c
// or, if transposed, in row c, column r·step.
type matrix struct {
	mat.Weights
	rows, cols int
	transposed bool
	step       int // between columns, if transposed
	// packed is set instead of Weights if the weight is quantised. The view begins at its row and
	// col. step is the distance of its rows unless transposed.
	packed    quant.Packed
	row, col  int
	ascending bool // see backend.Quant
	// coded is set instead of the data of Weights if the weight is coded. The view begins at row.
	coded coded.Matrix
	first int // the row that Data begins with
}

// weight checks a weight of op.
func (b *Backend) weight(op string, m backend.Matrix) (matrix, bool) {
	if m.Quant != nil && m.Quant.Format == meta.QuantCoded {
		return b.codedMatrix(op, m)
	}
	if m.Quant != nil {
		return b.quantised(op, m)
	}
	f, ok := format(m.DType)
	if !ok || m.Rank != 2 {
		b.fail("%s: weight %v of dtype %v cannot be used by the cpu", op, m.Shape(), m.DType)
		return matrix{}, false
	}
	stride := m.RowStride()
	out := matrix{rows: m.OutRows(), cols: m.InCols(), transposed: m.Transposed, step: max(m.RowStep, 1)}
	out.Weights = mat.Weights{Data: m.Data, Stride: stride * f.Size(), Format: f}
	if !m.Transposed {
		out.Stride *= out.step
		out.step = 1
	}
	if need := ((m.Dims[0]-1)*stride + m.Dims[1]) * f.Size(); m.RowStep <= 1 && len(m.Data) < need && m.Elements() > 0 {
		b.fail("%s: weight %v of dtype %v has %d bytes", op, m.Shape(), m.DType, len(m.Data))
		return matrix{}, false
	}
	return out, true
}

// The slots for vectors that one operation may widen.
const (
	slotWeight = iota
	slotBias
	slotSinks
	slotCorrection
	slotProfiles = slotWeight // of attention, which has no other weight
)

// vector returns t as float32 with n elements, or nil if t is absent. The result is valid until
// the slot is used again.
func (b *Backend) vector(op, name string, t tensor.Tensor, slot, n int) ([]float32, bool) {
	return b.vectorAt(op, name, t, slot, 0, n)
}

// vectorAt is vector at a place in the slot, which must be large enough unless at is 0.
func (b *Backend) vectorAt(op, name string, t tensor.Tensor, slot, at, n int) ([]float32, bool) {
	if t.IsZero() {
		return nil, true
	}
	f, ok := format(t.DType)
	stride := 1
	if t.Rank == 1 {
		stride = max(t.Stride, 1)
	}
	if !ok || t.Elements() != n || n > 0 && len(t.Data) < ((n-1)*stride+1)*f.Size() || t.Rank > 1 && t.RowStride() != t.Cols() {
		b.fail("%s: %s is %v %v, not %d floats", op, name, t.DType, t.Shape(), n)
		return nil, false
	}
	if f == mat.Float32 && address(t.Data)%4 == 0 && stride == 1 {
		return t.F32()[:n], true
	}
	s := &b.vectors[slot]
	if err := s.grow(b.ledger, at+n); err != nil {
		b.fail("%s: %w", op, err)
		return nil, false
	}
	dst := s.v[at:][:n]
	b.widen = widen{set: b.set, dst: dst, src: t.Data, format: f, stride: stride}
	b.run(&b.widen, 1, n)
	return dst, true
}

// widen converts a vector and recovers from faults.
type widen struct {
	set    *kernels.Set
	dst    []float32
	src    []byte
	format mat.Format
	stride int
}

func (t *widen) run(_ *worker, _ int) {
	if t.stride == 1 {
		t.set.Vector.Widen(t.dst, t.src, t.format)
		return
	}
	step := t.stride * t.format.Size()
	for i := range t.dst {
		mat.Widen(t.dst[i:i+1], t.src[i*step:], t.format)
	}
}

// from returns the part of m that begins at row r, column c.
func from(m mat.Floats, r, c int) mat.Floats {
	m.V = m.V[r*m.Stride+c:]
	return m
}

// row returns n elements of row r.
func row(m mat.Floats, r, n int) []float32 { return m.V[r*m.Stride:][:n] }

// ceil returns a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }
