package tensor

import "slices"

// Add returns a + b, element by element. Shapes are aligned at the last dimension. Missing
// dimensions and dimensions of length 1 are repeated.
func (tp *Tape) Add(a, b *Tensor) *Tensor {
	out, w := tp.broadcast("add", a, b)
	if w == nil {
		return out
	}
	if w.same && out.widen(a, b) {
		w.each(func(y, i, j int) { out.set64(y, a.at64(i)+b.at64(j)) })
	} else {
		w.each(func(y, i, j int) { out.data[y] = a.data[i] + b.data[j] })
	}
	return tp.record(out, func(grad []float32) {
		w.reduce(tp.gradient(b), true, func(y, _, _ int) float32 { return grad[y] })
		if w.same {
			tp.hand(out, a, grad)
			return
		}
		w.reduce(tp.gradient(a), false, func(y, _, _ int) float32 { return grad[y] })
	})
}

// Sub returns a - b. It broadcasts as Add does.
func (tp *Tape) Sub(a, b *Tensor) *Tensor {
	out, w := tp.broadcast("sub", a, b)
	if w == nil {
		return out
	}
	w.each(func(y, i, j int) { out.data[y] = a.data[i] - b.data[j] })
	return tp.record(out, func(grad []float32) {
		w.reduce(tp.gradient(a), false, func(y, _, _ int) float32 { return grad[y] })
		w.reduce(tp.gradient(b), true, func(y, _, _ int) float32 { return -grad[y] })
	})
}

// Mul returns a·b, element by element. It broadcasts as Add does.
func (tp *Tape) Mul(a, b *Tensor) *Tensor {
	out, w := tp.broadcast("mul", a, b)
	if w == nil {
		return out
	}
	w.each(func(y, i, j int) { out.data[y] = a.data[i] * b.data[j] })
	return tp.record(out, func(grad []float32) {
		w.reduce(tp.gradient(a), false, func(y, _, j int) float32 { return grad[y] * b.data[j] })
		w.reduce(tp.gradient(b), true, func(y, i, _ int) float32 { return grad[y] * a.data[i] })
	})
}

// walk pairs the elements of two operands with those of their result.
type walk struct {
	tp    *Tape
	same  bool // equal shapes
	shape []int
	a, b  []int // how far one step in each dimension moves in an operand; 0 repeats
}

// broadcast returns the result tensor of two operands. The walk is nil after an error.
func (tp *Tape) broadcast(name string, a, b *Tensor) (*Tensor, *walk) {
	if !tp.ready(name, a, b) {
		return tp.void(), nil
	}
	w := tp.pair(a.shape, b.shape)
	if w == nil {
		return tp.fail("%s: cannot broadcast shapes %v and %v", name, a, b), nil
	}
	return tp.result(w.shape, a, b), w
}

// pair aligns two shapes at their last dimensions. It returns nil if they cannot be broadcast.
func (tp *Tape) pair(a, b []int) *walk {
	n := max(len(a), len(b))
	w := &walk{tp: tp, same: slices.Equal(a, b), shape: make([]int, n), a: make([]int, n), b: make([]int, n)}
	stepA, stepB := 1, 1
	for back := 1; back <= n; back++ {
		da, db := 1, 1
		if back <= len(a) {
			da = a[len(a)-back]
		}
		if back <= len(b) {
			db = b[len(b)-back]
		}
		if da != db && da != 1 && db != 1 {
			return nil
		}
		d := n - back
		w.shape[d] = da
		if da == 1 {
			w.shape[d] = db
		} else {
			w.a[d] = stepA
		}
		if db != 1 {
			w.b[d] = stepB
		}
		stepA, stepB = stepA*da, stepB*db
	}
	return w
}

// each calls f with the positions of each element in the result and in both operands, on all
// threads.
func (w *walk) each(f func(y, i, j int)) {
	w.tp.ranges(count(w.shape), func(lo, hi int) { w.span(lo, hi, f) })
}

// reduce adds f of each element to an operand's gradient. It uses all threads if no element is
// repeated, and ascending order otherwise. It does nothing if dst is nil.
func (w *walk) reduce(dst []float32, second bool, f func(y, i, j int) float32) {
	n := count(w.shape)
	put := func(y, i, j int) { dst[i] += f(y, i, j) }
	if second {
		put = func(y, i, j int) { dst[j] += f(y, i, j) }
	}
	switch {
	case dst == nil:
	case len(dst) == n:
		w.each(put)
	default:
		w.span(0, n, put)
	}
}

// span walks the elements [lo, hi) of the result.
func (w *walk) span(lo, hi int, f func(y, i, j int)) {
	if w.same {
		for y := lo; y < hi; y++ {
			f(y, y, y)
		}
		return
	}
	last := len(w.shape) - 1
	for y := lo; y < hi; {
		i, j, rest := 0, 0, y
		for d := last; d >= 0; d-- {
			at := rest % w.shape[d]
			rest /= w.shape[d]
			i, j = i+at*w.a[d], j+at*w.b[d]
		}
		row := min(hi-y, w.shape[last]-y%w.shape[last])
		for range row {
			f(y, i, j)
			y, i, j = y+1, i+w.a[last], j+w.b[last]
		}
	}
}
