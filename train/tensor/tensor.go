package tensor

import (
	"fmt"
	"math"
	"slices"
)

// Tensor is a float32 array in row-major order on a [Tape]. Its data stays valid after Backward;
// only the record is freed.
type Tensor struct {
	tape  *Tape
	data  []float32
	shape []int
	param *Parameter // nil unless created by Use
	grad  []float32  // set while Backward runs
	needs bool       // needs a gradient
	pass  int        // the tape's pass that created it
	lent  bool       // the memory is the tape's, which reclaims it
	wide  []float64  // the values in float64, if a convolution uses them
	node  *node      // the operation that created it, if it needs a gradient
	ins   []*Tensor  // the operands that Backward needs, until the operation is recorded
	// released reports that the values of param are no longer in memory.
	released bool

	// A view shares the data of base from index at on, and its gradient is part of base's.
	base *Tensor
	at   int
}

// Data returns the elements without copying. It returns nil after an error.
func (t *Tensor) Data() []float32 {
	if t == nil {
		return nil
	}
	return t.data
}

// Shape returns the lengths of the dimensions, outermost first. It is empty for a scalar.
func (t *Tensor) Shape() []int {
	if t == nil {
		return nil
	}
	return slices.Clone(t.shape)
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return len(t.Data()) }

// Tape returns the tape on which t was created.
func (t *Tensor) Tape() *Tape { return t.tape }

// RequiresGrad reports whether t depends on a trainable parameter.
func (t *Tensor) RequiresGrad() bool { return t != nil && t.needs }

// Item returns the value of a one-element tensor, and NaN for any other.
func (t *Tensor) Item() float32 {
	if t.Len() != 1 {
		return float32(math.NaN())
	}
	return t.data[0]
}

// String returns the shape, for messages.
func (t *Tensor) String() string {
	if t == nil {
		return "none"
	}
	return fmt.Sprint(t.shape)
}

func (t *Tensor) dims() int { return len(t.shape) }

// last returns the length of the innermost dimension, 1 for a scalar.
func (t *Tensor) last() int {
	if len(t.shape) == 0 {
		return 1
	}
	return t.shape[len(t.shape)-1]
}

// outer returns the number of rows: elements divided by the innermost dimension.
func (t *Tensor) outer() int {
	if len(t.shape) == 0 {
		return 1
	}
	return count(t.shape[:len(t.shape)-1])
}

func (t *Tensor) is(shape ...int) bool { return slices.Equal(t.shape, shape) }

// count returns the number of elements of a shape.
func count(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// sized reports whether a shape has n elements. It is false if the product overflows.
func sized(shape []int, n int) bool {
	total := 1
	for _, d := range shape {
		if d < 0 || d > 0 && total > math.MaxInt/d {
			return false
		}
		total *= d
	}
	return total == n
}

// axis resolves a dimension that may be negative.
func (t *Tensor) axis(dim int) (int, bool) {
	if dim < 0 {
		dim += len(t.shape)
	}
	return dim, dim >= 0 && dim < len(t.shape)
}

// around splits a shape at dim: elements before it, its length, elements after it.
func (t *Tensor) around(dim int) (before, n, after int) {
	return count(t.shape[:dim]), t.shape[dim], count(t.shape[dim+1:])
}
