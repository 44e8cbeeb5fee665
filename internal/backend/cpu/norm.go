package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

type norm struct {
	set          *kernels.Set
	dst, x       mat.Floats
	weight, bias []float32 // for all groups, or one for each
	rows, cols   int
	spec         meta.NormSpec
}

// Norm supports weights of Dim elements, or of as many as x has columns; then each group has its
// own.
func (b *Backend) Norm(dst, x, weight, bias tensor.Tensor, a meta.NormSpec) {
	if b.failed.Load() {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	if a.Dim <= 0 || cols%a.Dim != 0 {
		b.fail("norm: groups of %d in rows of %d", a.Dim, cols)
		return
	}
	op := norm{set: b.set, rows: rows, cols: cols, spec: a}
	var ok bool
	if op.x, ok = b.floats("norm", "operand", x, rows, cols); !ok {
		return
	}
	if op.dst, ok = b.floats("norm", "result", dst, rows, cols); !ok {
		return
	}
	if op.weight, ok = b.vector("norm", "weight", weight, slotWeight, width(weight, a.Dim, cols)); !ok {
		return
	}
	if op.bias, ok = b.vector("norm", "bias", bias, slotBias, width(bias, a.Dim, cols)); !ok {
		return
	}
	b.norm = op
	b.run(&b.norm, ceil(rows, rowsPerUnit(cols)), rows*cols)
}

// width returns the number of weights that t must have.
func width(t tensor.Tensor, dim, cols int) int {
	if t.Elements() == cols {
		return cols
	}
	return dim
}

func (op *norm) run(_ *worker, unit int) {
	per, dim := rowsPerUnit(op.cols), op.spec.Dim
	for r := unit * per; r < min((unit+1)*per, op.rows); r++ {
		x, dst := row(op.x, r, op.cols), row(op.dst, r, op.cols)
		for c := 0; c < op.cols; c += dim {
			op.group(dst[c:c+dim], x[c:c+dim], c)
		}
	}
}

// group normalises the channels from c on.
func (op *norm) group(dst, x []float32, c int) {
	var mean float32
	if op.spec.Layer {
		mean = float32(sum(x) / float64(len(x)))
	}
	squares := float64(op.set.Vector.SumSquares(x, mean)) / float64(len(x))
	inverse := float32(1 / math.Sqrt(squares+float64(op.spec.Eps)))
	op.set.Vector.Norm(dst, x, op.part(op.weight, c), op.part(op.bias, c), vector.Affine{Mean: mean, By: inverse, Offset: op.spec.Offset})
}

// part returns the part of a weight that belongs to the group at column c. It returns nil if the
// weight is absent.
func (op *norm) part(v []float32, c int) []float32 {
	if v == nil || len(v) == op.spec.Dim {
		return v
	}
	return v[c : c+op.spec.Dim]
}

// sum returns the sum of x, added in four lanes of float64.
func sum(x []float32) float64 {
	var s [4]float64
	for i, v := range x {
		s[i%4] += float64(v)
	}
	return (s[0] + s[2]) + (s[1] + s[3])
}

type rope struct {
	set              *kernels.Set
	x, cos, sin      mat.Floats
	rows, heads, dim int
	half             int // number of rotated pairs
	interleaved      bool
}

// Rope rotates pair i of a head by the angle whose cosine and sine are in column i.
func (b *Backend) Rope(x tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool) {
	if b.failed.Load() {
		return
	}
	rows, cols, half := x.Rows(), x.Cols(), cos.Cols()
	if dim <= 0 || cols%dim != 0 || 2*half > dim {
		b.fail("rope: %d rotated channels of heads of %d in rows of %d", 2*half, dim, cols)
		return
	}
	op := rope{set: b.set, rows: rows, heads: cols / dim, dim: dim, half: half, interleaved: interleaved}
	var ok bool
	if op.x, ok = b.floats("rope", "operand", x, rows, cols); !ok {
		return
	}
	if op.cos, ok = b.floats("rope", "cosine", cos, rows, half); !ok {
		return
	}
	if op.sin, ok = b.floats("rope", "sine", sin, rows, half); !ok {
		return
	}
	b.rope = op
	b.run(&b.rope, ceil(rows, rowsPerUnit(cols)), 2*rows*cols)
}

func (op *rope) run(_ *worker, unit int) {
	per := rowsPerUnit(op.heads * op.dim)
	for r := unit * per; r < min((unit+1)*per, op.rows); r++ {
		x := row(op.x, r, op.heads*op.dim)
		cos, sin := row(op.cos, r, op.half), row(op.sin, r, op.half)
		for h := 0; h < len(x); h += op.dim {
			if op.interleaved {
				op.set.Vector.RotateInterleaved(x[h:h+2*op.half], cos, sin)
			} else {
				op.set.Vector.Rotate(x[h:h+op.half], x[h+op.half:h+2*op.half], cos, sin)
			}
		}
	}
}
