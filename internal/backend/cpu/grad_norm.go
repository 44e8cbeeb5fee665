package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels/grad"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// normGrad is one backward operation of Norm.
type normGrad struct {
	norm
	dx, dy  mat.Floats
	moments []float32 // of each group: the mean and the reciprocal deviation
	factors []float32 // the weights, as wide as weight, or a group of ones
}

// NormGrad recomputes the moments.
func (b *Backend) NormGrad(dx, dweight, dbias, dy, x, weight tensor.Tensor, a meta.NormSpec) {
	if b.failed.Load() {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	if a.Dim <= 0 || cols%a.Dim != 0 {
		b.fail("norm gradient: groups of %d in rows of %d", a.Dim, cols)
		return
	}
	op := normGrad{norm: norm{set: b.set, rows: rows, cols: cols, spec: a}, moments: make([]float32, 2*rows*(cols/a.Dim))}
	n := width(weight, a.Dim, cols)
	if weight.IsZero() && !dbias.IsZero() {
		n = dbias.Elements()
	}
	var ok [6]bool
	op.x, ok[0] = b.floats("norm gradient", "operand", x, rows, cols)
	op.dy, ok[1] = b.floats("norm gradient", "result", dy, rows, cols)
	op.dx, ok[2] = b.optional("norm gradient", "gradient", dx, rows, cols)
	op.weight, ok[3] = b.vector("norm gradient", "weight", weight, slotWeight, n)
	dw, _, ok4 := b.gradient("norm gradient", "weight's gradient", dweight, n)
	db, _, ok5 := b.gradient("norm gradient", "bias's gradient", dbias, n)
	ok[4], ok[5] = ok4, ok5
	if ok != [6]bool{true, true, true, true, true, true} {
		return
	}
	op.factors = make([]float32, max(len(op.weight), a.Dim))
	for i := range op.factors {
		op.factors[i] = 1
		if op.weight != nil {
			op.factors[i] = a.Offset + op.weight[i]
		}
	}
	b.each(rows, cols, func(_ *worker, r int) { op.row(r) })
	if dw != nil {
		b.columns(n, rows, func(sum []float32, r, c int) { op.addWeight(sum, r, c, n) },
			func(sum []float32, c int) { axpy(dw[c:c+len(sum)], sum, 1) })
	}
	if db != nil {
		b.columns(n, rows, func(sum []float32, r, c int) {
			for at := c; at < cols; at += n {
				b.set.Vector.AddScaled(sum, from(op.dy, r, at).V, 1)
			}
		}, func(sum []float32, c int) { axpy(db[c:c+len(sum)], sum, 1) })
	}
}

func (op *normGrad) row(r int) {
	x, dy, dim := row(op.x, r, op.cols), row(op.dy, r, op.cols), op.spec.Dim
	for c := 0; c < op.cols; c += dim {
		v := x[c : c+dim]
		var mean float32
		if op.spec.Layer {
			mean = float32(sum(v) / float64(dim))
		}
		squares := float64(op.set.Vector.SumSquares(v, mean)) / float64(dim)
		inverse := float32(1 / math.Sqrt(squares+float64(op.spec.Eps)))
		m := op.moments[2*(r*op.cols+c)/dim:]
		m[0], m[1] = mean, inverse
		if op.dx.V != nil {
			op.set.Grad.NormGrad(row(op.dx, r, op.cols)[c:c+dim], dy[c:c+dim], v, op.part(op.factors, c), grad.Norm{Mean: mean, By: inverse, Centred: op.spec.Layer})
		}
	}
}

// addWeight adds row r's share of the gradients of n weights from c on.
func (op *normGrad) addWeight(sum []float32, r, c, n int) {
	dim := op.spec.Dim
	for at := c; at < op.cols; at += n {
		dy, x := from(op.dy, r, at).V, from(op.x, r, at).V
		for i := 0; i < len(sum); { // group by group
			m, n := op.moments[2*((r*op.cols+at+i)/dim):], min(dim-(at+i)%dim, len(sum)-i)
			op.set.Grad.NormWeightGrad(sum[i:i+n], dy[i:], x[i:], m[0], m[1])
			i += n
		}
	}
}

// RopeGrad rotates by the negated angles.
func (b *Backend) RopeGrad(dx tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool) {
	if b.failed.Load() {
		return
	}
	rows, cols, half := dx.Rows(), dx.Cols(), cos.Cols()
	if dim <= 0 || cols%dim != 0 || 2*half > dim {
		b.fail("rope gradient: %d rotated channels of heads of %d in rows of %d", 2*half, dim, cols)
		return
	}
	grad, ok1 := b.floats("rope gradient", "operand", dx, rows, cols)
	c, ok2 := b.floats("rope gradient", "cosine", cos, rows, half)
	s, ok3 := b.floats("rope gradient", "sine", sin, rows, half)
	if !ok1 || !ok2 || !ok3 || !b.reserve(half) {
		return
	}
	b.each(rows, cols, func(w *worker, r int) {
		opposite := w.scratch.v[:half]
		x, cosine, sine := row(grad, r, cols), row(c, r, half), row(s, r, half)
		for i, v := range sine {
			opposite[i] = -v
		}
		for h := 0; h < cols; h += dim {
			if interleaved {
				b.set.Vector.RotateInterleaved(x[h:h+2*half], cosine, opposite)
			} else {
				b.set.Grad.Rotate(x[h:h+half], x[h+half:h+2*half], cosine, sine, -1)
			}
		}
	})
}
