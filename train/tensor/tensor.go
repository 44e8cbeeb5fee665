package tensor

import (
	"fmt"
	"math"
	"slices"
)

// Tensor is an array of float32, rows last, on a [Tape]. Its numbers stay valid after
// Backward; only what was recorded about it is freed.
type Tensor struct {
	tape  *Tape
	data  []float32
	shape []int
	param *Parameter // nil unless made by Use
	grad  []float32  // while Backward runs
	needs bool       // a gradient is wanted
	pass  int        // the tape's pass that made it
	lent  bool       // the memory is the tape's, which takes it back
	wide  []float64  // the numbers in float64, where a convolution asked for it

	// A view has the numbers of base from at on, and its gradient lies in base's.
	base *Tensor
	at   int
}

// Data is the numbers, not a copy. It is nil after an error.
func (t *Tensor) Data() []float32 {
	if t == nil {
		return nil
	}
	return t.data
}

// Shape is the lengths of the dimensions, outermost first; empty for a scalar.
func (t *Tensor) Shape() []int {
	if t == nil {
		return nil
	}
	return slices.Clone(t.shape)
}

// Len is the number of elements.
func (t *Tensor) Len() int { return len(t.Data()) }

// Tape is where t was made.
func (t *Tensor) Tape() *Tape { return t.tape }

// RequiresGrad reports whether a trainable parameter is behind t.
func (t *Tensor) RequiresGrad() bool { return t != nil && t.needs }

// Item is the number of a tensor of one element, NaN of any other.
func (t *Tensor) Item() float32 {
	if t.Len() != 1 {
		return float32(math.NaN())
	}
	return t.data[0]
}

// String shows the shape, for messages.
func (t *Tensor) String() string {
	if t == nil {
		return "none"
	}
	return fmt.Sprint(t.shape)
}

func (t *Tensor) dims() int { return len(t.shape) }

// last is the length of the innermost dimension, 1 for a scalar.
func (t *Tensor) last() int {
	if len(t.shape) == 0 {
		return 1
	}
	return t.shape[len(t.shape)-1]
}

// outer is the number of rows: elements by the innermost dimension.
func (t *Tensor) outer() int {
	if len(t.shape) == 0 {
		return 1
	}
	return count(t.shape[:len(t.shape)-1])
}

func (t *Tensor) is(shape ...int) bool { return slices.Equal(t.shape, shape) }

// count is the number of elements of a shape.
func count(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// sized checks that a shape has n elements; products that overflow have not.
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

// axis resolves a dimension that may count from the back.
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
