// Package tensor is a typed view of memory: where the bytes lie, their dtype and
// their shape. It owns nothing, allocates nothing and computes nothing.
//
// A [Tensor] is a value of a few words; views of it (rows, columns) are made without
// allocation. Its bytes live as long as their owner says: a mapping, a ring slot, an
// arena.
package tensor

import (
	"fmt"
	"unsafe"

	"github.com/heftai/heft/meta"
)

// MaxRank is the largest number of dimensions.
const MaxRank = 4

// A Tensor is a view of a dense array, or of a matrix whose rows lie Stride elements
// apart. The zero Tensor stands for an absent one (no bias).
type Tensor struct {
	DType meta.DType
	// Owner numbers what the elements belong to, such as a parameter with a gradient, for the one who gave
	// the number. Views have that of the whole; 0 means none.
	Owner int32
	Rank  int
	Dims  [MaxRank]int
	// Stride is the distance of two rows of the first dimension in elements; 0 means
	// dense.
	Stride int
	// Data is host memory that starts at the first element. It is nil for memory
	// of a device, which Address tells.
	Data    []byte
	Address uintptr
}

// Of is a dense view of host bytes. It fails where data is too short for the shape.
func Of(data []byte, dtype meta.DType, dims ...int) (Tensor, error) {
	t := Tensor{DType: dtype, Rank: len(dims), Data: data}
	if len(dims) > MaxRank {
		return Tensor{}, fmt.Errorf("tensor: shape %v has more than %d dimensions", dims, MaxRank)
	}
	copy(t.Dims[:], dims)
	if need := dtype.Bytes(meta.Elements(dims)); int64(len(data)) < need {
		return Tensor{}, fmt.Errorf("tensor: %d bytes for %v of %v, which take %d", len(data), dims, dtype, need)
	}
	return t, nil
}

// Floats is a dense float32 view of v, which it shares.
func Floats(v []float32, dims ...int) Tensor {
	t := Tensor{DType: meta.Float32, Rank: len(dims)}
	copy(t.Dims[:], dims)
	if len(v) > 0 {
		t.Data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
	}
	return t
}

// Doubles is a dense float64 view of v, which it shares.
func Doubles(v []float64, dims ...int) Tensor {
	t := Tensor{DType: meta.Float64, Rank: len(dims)}
	copy(t.Dims[:], dims)
	if len(v) > 0 {
		t.Data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
	}
	return t
}

// IsZero reports whether t stands for an absent tensor.
func (t Tensor) IsZero() bool { return t.Rank == 0 && t.Data == nil && t.Address == 0 }

// Rows is the size of the first dimension.
func (t Tensor) Rows() int { return t.Dims[0] }

// Cols is the number of elements of one row: the product of the other dimensions.
func (t Tensor) Cols() int {
	n := 1
	for _, d := range t.Dims[1:max(t.Rank, 1)] {
		n *= d
	}
	return n
}

// RowStride is the distance of two rows in elements.
func (t Tensor) RowStride() int {
	if t.Stride != 0 {
		return t.Stride
	}
	return t.Cols()
}

// Elements is the number of elements.
func (t Tensor) Elements() int { return int(meta.Elements(t.Dims[:t.Rank])) }

// Bytes is the size of the elements, without gaps between rows.
func (t Tensor) Bytes() int64 { return t.DType.Bytes(int64(t.Elements())) }

// Slice is the view of rows [begin, end) of the first dimension.
func (t Tensor) Slice(begin, end int) Tensor {
	t = t.advance(begin * t.RowStride())
	t.Dims[0] = end - begin
	return t
}

// Columns is the view of columns [begin, end) of a matrix.
func (t Tensor) Columns(begin, end int) Tensor {
	stride := t.RowStride()
	t = t.advance(begin)
	t.Rank, t.Stride = 2, stride
	t.Dims = [MaxRank]int{t.Dims[0], end - begin}
	return t
}

// Index is element i of the first dimension: a row of a matrix, a matrix of a stack.
func (t Tensor) Index(i int) Tensor {
	t = t.advance(i * t.RowStride())
	t.Stride = 0
	copy(t.Dims[:], t.Dims[1:])
	t.Dims[MaxRank-1] = 0
	t.Rank--
	return t
}

func (t Tensor) advance(elements int) Tensor {
	n := int(t.DType.Bytes(int64(elements)))
	if t.Data != nil {
		t.Data = t.Data[n:]
	} else {
		t.Address += uintptr(n)
	}
	return t
}

// F32 is the elements as float32, sharing memory; gaps between rows are included.
// t must be host memory of dtype float32 that lies on a 4-byte boundary.
func (t Tensor) F32() []float32 {
	if len(t.Data) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/4)
}

// F64 is F32 for dtype float64, on an 8-byte boundary.
func (t Tensor) F64() []float64 {
	if len(t.Data) == 0 {
		return nil
	}
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/8)
}

// U16 is the elements as 16-bit words (bfloat16, float16), sharing memory. t must be
// host memory that lies on a 2-byte boundary.
func (t Tensor) U16() []uint16 {
	if len(t.Data) == 0 {
		return nil
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/2)
}

// Row is row i of a float32 matrix.
func (t Tensor) Row(i int) []float32 {
	s := i * t.RowStride()
	return t.F32()[s : s+t.Cols() : s+t.Cols()]
}

// Shape is a copy of the dimensions, for messages.
func (t Tensor) Shape() []int { return append([]int(nil), t.Dims[:t.Rank]...) }

// Same reports whether two views show the same elements of the same memory.
func Same(a, b Tensor) bool {
	return a.Address == b.Address && unsafe.SliceData(a.Data) == unsafe.SliceData(b.Data) &&
		a.DType == b.DType && a.Rank == b.Rank && a.Dims == b.Dims && a.RowStride() == b.RowStride()
}
