package tensor

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	view "github.com/heftai/heft/internal/tensor"
)

// Linear computes x·weightᵀ + bias over the last dimension. x is […, in], weight is [out, in], bias
// is [out] or nil, and the result is […, out].
func (tp *Tape) Linear(x, weight, bias *Tensor) *Tensor {
	if !tp.ready("linear", x, weight) || bias != nil && !tp.ready("linear", bias) {
		return tp.void()
	}
	if x.dims() < 1 || weight.dims() != 2 || weight.shape[1] != x.last() {
		return tp.fail("linear: x has shape %v, weight %v, want [… in] and [out in]", x, weight)
	}
	if bias != nil && !bias.is(weight.shape[0]) {
		return tp.fail("linear: weight has shape %v, bias %v, want [out in] and [out]", weight, bias)
	}
	if tp.autocast == Float16 {
		return tp.lowered(func(in []*Tensor) *Tensor { return tp.Linear(in[0], in[1], in[2]) }, x, weight, bias)
	}
	return tp.linear("linear", x, weight, bias, false)
}

// linear runs the backend's product of x with a weight [out, in], or [in, out] if transposed is
// set.
func (tp *Tape) linear(name string, x, weight, bias *Tensor, transposed bool) *Tensor {
	rows, n, m := x.outer(), x.last(), weight.shape[0]
	if transposed {
		m = weight.shape[1]
	}
	shape := append(slices.Clone(x.shape[:x.dims()-1]), m)
	if n == 0 && bias != nil { // empty sums
		return tp.Add(tp.Input(make([]float32, count(shape)), shape...), bias)
	}
	out := tp.blank(shape, x, weight, bias)
	if len(out.data) == 0 || n == 0 {
		return tp.recordZeros(out, x, weight, bias)
	}
	rounded := tp.autocast == BFloat16
	matrix := func(v []float32) backend.Matrix {
		if v == nil {
			return backend.Matrix{}
		}
		return backend.Matrix{Tensor: view.Floats(v, weight.shape...), Transposed: transposed}
	}
	tp.compute(name, func(b *cpu.Backend) {
		b.Product(view.Floats(out.data, rows, m), view.Floats(x.data, rows, n), matrix(weight.data), vectorOf(dataOf(bias)), rounded)
	})
	return tp.record(out, func(grad []float32) {
		dx, dw, dbias := tp.gradient(x), tp.gradient(weight), tp.gradient(bias)
		tp.compute(name, func(b *cpu.Backend) {
			b.LinearGrad(matrixOf(dx, n), matrix(dw), vectorOf(dbias), matrixOf(grad, m), matrixOf(x.data, n), matrix(weight.data), rounded)
		})
	})
}

// recordZeros is record for a result that is zero or empty and to which operands contribute
// nothing: their gradients are zeros.
func (tp *Tape) recordZeros(out *Tensor, operands ...*Tensor) *Tensor {
	clear(out.data)
	return tp.record(out, func([]float32) {
		for _, t := range operands {
			tp.gradient(t)
		}
	})
}

// Conv1D is Linear with the weight stored transposed, [in, out], as GPT-2 has it.
func (tp *Tape) Conv1D(x, weight, bias *Tensor) *Tensor {
	if !tp.ready("conv1d", x, weight) || bias != nil && !tp.ready("conv1d", bias) {
		return tp.void()
	}
	if x.dims() < 1 || weight.dims() != 2 || weight.shape[0] != x.last() {
		return tp.fail("conv1d: x has shape %v, weight %v, want [… in] and [in out]", x, weight)
	}
	if bias != nil && !bias.is(weight.shape[1]) {
		return tp.fail("conv1d: weight has shape %v, bias %v, want [in out] and [out]", weight, bias)
	}
	if tp.autocast == Float16 {
		return tp.lowered(func(in []*Tensor) *Tensor { return tp.Conv1D(in[0], in[1], in[2]) }, x, weight, bias)
	}
	return tp.linear("conv1d", x, weight, bias, true)
}

// MatMul multiplies over the last two dimensions: a is […, n, k], b is […, k, m]. Leading
// dimensions are a batch and are broadcast as in Add.
func (tp *Tape) MatMul(a, b *Tensor) *Tensor {
	if !tp.ready("matmul", a, b) {
		return tp.void()
	}
	da, db := a.dims(), b.dims()
	var w *walk
	if da >= 2 && db >= 2 && a.last() == b.shape[db-2] {
		w = tp.pair(a.shape[:da-2], b.shape[:db-2])
	}
	if w == nil {
		return tp.fail("matmul: a has shape %v, b %v, want [… n k] and [… k m]", a, b)
	}
	if tp.autocast != Float32 {
		return tp.lowered(func(in []*Tensor) *Tensor { return tp.MatMul(in[0], in[1]) }, a, b)
	}
	n, k, m := a.shape[da-2], a.shape[da-1], b.last()
	out := tp.blank(append(slices.Clone(w.shape), n, m), a, b)
	if db == 2 { // one product with more rows
		n, w = count(a.shape[:da-1]), &walk{same: true, shape: []int{1}}
	}
	if n*k*m*count(w.shape) == 0 {
		clear(out.data)
		return tp.record(out, func([]float32) {
			tp.gradient(a)
			tp.gradient(b)
		})
	}
	tp.products("matmul", w, func(c *cpu.Backend, y, i, j int) {
		c.Product(view.Floats(out.data[y*n*m:][:n*m], n, m), view.Floats(a.data[i*n*k:][:n*k], n, k), factor(b.data, j, k, m), view.Tensor{}, false)
	})
	return tp.record(out, func(grad []float32) {
		ga, gb := tp.gradient(a), tp.gradient(b)
		tp.products("matmul", w, func(c *cpu.Backend, y, i, j int) {
			var da view.Tensor
			if ga != nil {
				da = view.Floats(ga[i*n*k:][:n*k], n, k)
			}
			c.LinearGrad(da, factor(gb, j, k, m), view.Tensor{}, view.Floats(grad[y*n*m:][:n*m], n, m), view.Floats(a.data[i*n*k:][:n*k], n, k), factor(b.data, j, k, m), false)
		})
	})
}

// products calls f on a backend for each product of a batch.
func (tp *Tape) products(name string, w *walk, f func(c *cpu.Backend, y, i, j int)) {
	tp.compute(name, func(c *cpu.Backend) {
		w.span(0, count(w.shape), func(y, i, j int) { f(c, y, i, j) })
	})
}

// factor returns matrix j of a batch [… k m] as the weight of a product, or an absent matrix.
func factor(v []float32, j, k, m int) backend.Matrix {
	if v == nil {
		return backend.Matrix{}
	}
	return backend.Matrix{Tensor: view.Floats(v[j*k*m:][:k*m], k, m), Transposed: true}
}

// Embedding looks up the rows of weight [rows, width] that ids select. The result has the given
// shape (default: one dimension) followed by width. An id that is not a row of weight is an error.
func (tp *Tape) Embedding(weight *Tensor, ids []int, shape ...int) *Tensor {
	return tp.embedding(weight, ids, -1, shape)
}

// EmbeddingPadded is Embedding, but row padding gets no gradient.
func (tp *Tape) EmbeddingPadded(weight *Tensor, ids []int, padding int, shape ...int) *Tensor {
	if padding < 0 {
		padding += weight.outer()
	}
	return tp.embedding(weight, ids, padding, shape)
}

func (tp *Tape) embedding(weight *Tensor, ids []int, padding int, shape []int) *Tensor {
	if !tp.ready("embedding", weight) {
		return tp.void()
	}
	if len(shape) == 0 {
		shape = []int{len(ids)}
	}
	if weight.dims() != 2 || !sized(shape, len(ids)) {
		return tp.fail("embedding: weight has shape %v, got %d ids for shape %v", weight, len(ids), shape)
	}
	rows, n := weight.shape[0], weight.shape[1]
	for i, id := range ids {
		if id < 0 || id >= rows {
			return tp.fail("embedding: got id %d at position %d, want one of the rows of weight of shape %v", id, i, weight)
		}
	}
	out := tp.result(append(slices.Clone(shape), n), weight)
	for i, id := range ids {
		copy(out.data[i*n:(i+1)*n], weight.data[id*n:])
	}
	taught := make([]int32, len(ids))
	for i, id := range ids {
		if taught[i] = int32(id); id == padding {
			taught[i] = -1
		}
	}
	return tp.record(out, func(grad []float32) {
		if g := tp.gradient(weight); len(grad) > 0 {
			tp.compute("embedding", func(b *cpu.Backend) {
				b.EmbedGrad(backend.Matrix{Tensor: matrixOf(g, n)}, matrixOf(grad, n), taught, 1)
			})
		}
	})
}
