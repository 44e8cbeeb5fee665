package cpu

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Gradients = (*Backend)(nil)

// taskFunc is a task of training, which may allocate.
type taskFunc func(w *worker, unit int)

func (f taskFunc) run(w *worker, unit int) { f(w, unit) }

// each divides rows of cols elements into units and calls f for each row.
func (b *Backend) each(rows, cols int, f func(w *worker, r int)) {
	per := rowsPerUnit(cols)
	b.run(taskFunc(func(w *worker, unit int) {
		for r := unit * per; r < min((unit+1)*per, rows); r++ {
			f(w, r)
		}
	}), ceil(rows, per), 4*rows*cols)
}

// optional is floats for a tensor that may be absent; then V is nil.
func (b *Backend) optional(op, name string, t tensor.Tensor, rows, cols int) (mat.Floats, bool) {
	if t.IsZero() {
		return mat.Floats{}, true
	}
	return b.floats(op, name, t, rows, cols)
}

// gradient returns a vector of n elements to add to, and its stride. The vector is nil if t is
// absent.
func (b *Backend) gradient(op, name string, t tensor.Tensor, n int) (v []float32, stride int, ok bool) {
	if t.IsZero() {
		return nil, 1, true
	}
	w := t
	w.Rank, w.Dims = 2, [tensor.MaxRank]int{n, 1}
	w.Stride = 1
	if t.Rank == 1 {
		w.Stride = max(t.Stride, 1)
	}
	if t.Elements() != n {
		b.fail("%s: %s is %v, not %d floats", op, name, t.Shape(), n)
		return nil, 0, false
	}
	m, ok := b.floats(op, name, w, n, 1)
	if last := (n-1)*m.Stride + 1; ok && n > 0 && len(m.V) > last {
		m.V = m.V[:last] // without what is behind t in its memory
	}
	return m.V, m.Stride, ok
}

// Zero clears x row by row.
func (b *Backend) Zero(x tensor.Tensor) {
	if b.failed.Load() {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	m, ok := b.floats("zero", "operand", x, rows, cols)
	if !ok {
		return
	}
	if m.Stride == cols && rows > 0 { // in pieces of one size
		n := rows * cols
		rows, cols = ceil(n, rowsPerUnit(1)), rowsPerUnit(1)
		b.each(rows, cols, func(_ *worker, r int) { clear(m.V[r*cols : min((r+1)*cols, n)]) })
		return
	}
	b.each(rows, cols, func(_ *worker, r int) { clear(row(m, r, cols)) })
}

// Round rounds x row by row.
func (b *Backend) Round(x tensor.Tensor, dtype meta.DType) {
	if b.failed.Load() || dtype == meta.Float32 {
		return
	}
	f, ok := format(dtype)
	rows, cols := x.Rows(), x.Cols()
	m, fits := b.floats("round", "operand", x, rows, cols)
	if !fits {
		return
	}
	if !ok || !b.reserve(ceil(cols, 2)) {
		b.fail("round: to %v", dtype)
		return
	}
	b.each(rows, cols, func(w *worker, r int) {
		part := tensor.Floats(w.scratch.v[:ceil(cols, 2)], ceil(cols, 2)).Data[:2*cols]
		mat.Narrow(part, row(m, r, cols), f)
		b.set.Vector.Widen(row(m, r, cols), part, f)
	})
}

// EmbedGrad distributes the columns over the threads, so that rows with equal ids are added in
// order.
func (b *Backend) EmbedGrad(dtable backend.Matrix, dy tensor.Tensor, ids []int32, scale float32) {
	if b.failed.Load() {
		return
	}
	cols := dtable.Cols()
	in, ok := b.floats("embed gradient", "result", dy, len(ids), cols)
	if !ok || !b.inside("embed gradient", slices.DeleteFunc(slices.Clone(ids), negative), dtable.Rows()) {
		return
	}
	out, ok := b.floats("embed gradient", "table", dtable.Tensor, dtable.Rows(), cols)
	if !ok {
		return
	}
	const width = 64
	b.run(taskFunc(func(_ *worker, unit int) {
		c := unit * width
		n := min(width, cols-c)
		for i, id := range ids {
			if negative(id) {
				continue
			}
			axpy(from(out, int(id), c).V[:n], from(in, i, c).V[:n], scale)
		}
	}), ceil(cols, width), len(ids)*cols)
}

func negative(id int32) bool { return id < 0 }

// ScatterAddGrad computes row by row.
func (b *Backend) ScatterAddGrad(dx tensor.Tensor, dweights []float32, dy, x tensor.Tensor, rows []int32, weights []float32) {
	if b.failed.Load() {
		return
	}
	n, cols := len(rows), dy.Cols()
	grad, ok1 := b.floats("scatter gradient", "result", dy, dy.Rows(), cols)
	into, ok2 := b.optional("scatter gradient", "operand", dx, n, cols)
	if !ok1 || !ok2 || !b.inside("scatter gradient", rows, dy.Rows()) {
		return
	}
	var in mat.Floats
	if dweights != nil {
		var ok bool
		if in, ok = b.floats("scatter gradient", "operand", x, n, cols); !ok {
			return
		}
	}
	b.each(n, cols, func(_ *worker, i int) {
		g := row(grad, int(rows[i]), cols)
		if into.V != nil {
			axpy(row(into, i, cols), g, weights[i])
		}
		if dweights != nil {
			dweights[i] += float32(dot(row(in, i, cols), g))
		}
	})
}

// StoreKVGrad moves the gradients token by token.
func (b *Backend) StoreKVGrad(dkv backend.KV, dk, dv tensor.Tensor, slots []int32) {
	if b.failed.Load() {
		return
	}
	keys, values, ok := b.storableKV("gradient of ", &dkv, dk, dv, slots)
	if !ok {
		return
	}
	take := func(to []float32, t tensor.Tensor, slot int) {
		width := t.Dims[2]
		at := slot/dkv.PageTokens*t.RowStride() + slot%dkv.PageTokens*width
		from := t.F32()[at : at+width]
		axpy(to, from, 1)
		clear(from)
	}
	b.each(len(slots), dk.Cols(), func(_ *worker, i int) {
		take(row(keys, i, dk.Cols()), dkv.K, int(slots[i]))
		if values.V != nil {
			take(row(values, i, dv.Cols()), dkv.V, int(slots[i]))
		}
	})
}

// dot returns the dot product of x and y, summed in four lanes of float64.
func dot(x, y []float32) float64 {
	var s [4]float64
	y = y[:len(x)]
	n := len(x) &^ 3
	for i := 0; i < n; i += 4 {
		s[0] += float64(x[i]) * float64(y[i])
		s[1] += float64(x[i+1]) * float64(y[i+1])
		s[2] += float64(x[i+2]) * float64(y[i+2])
		s[3] += float64(x[i+3]) * float64(y[i+3])
	}
	for i := n; i < len(x); i++ {
		s[i%4] += float64(x[i]) * float64(y[i])
	}
	return (s[0] + s[2]) + (s[1] + s[3])
}
