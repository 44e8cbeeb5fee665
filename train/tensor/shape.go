package tensor

import "slices"

// Reshape returns x with another shape, without copying. One dimension may be -1 and is then
// computed.
func (tp *Tape) Reshape(x *Tensor, shape ...int) *Tensor {
	if !tp.ready("reshape", x) {
		return tp.void()
	}
	shape = slices.Clone(shape)
	if at := slices.Index(shape, -1); at >= 0 {
		shape[at] = 1
		if n := count(shape); n > 0 {
			shape[at] = len(x.data) / n
		}
	}
	if !sized(shape, len(x.data)) {
		return tp.fail("reshape: x has shape %v, which does not fill %v", x, shape)
	}
	return tp.view(x, 0, shape)
}

// Transpose exchanges two dimensions. Negative dimensions count from the last.
func (tp *Tape) Transpose(x *Tensor, dim1, dim2 int) *Tensor {
	if !tp.ready("transpose", x) {
		return tp.void()
	}
	i, ok1 := x.axis(dim1)
	j, ok2 := x.axis(dim2)
	if !ok1 || !ok2 {
		return tp.fail("transpose: x has shape %v: dimensions %d and %d are out of range", x, dim1, dim2)
	}
	i, j = min(i, j), max(i, j)
	shape := slices.Clone(x.shape)
	shape[i], shape[j] = shape[j], shape[i]
	out := tp.result(shape, x)
	t := transposition{count(x.shape[:i]), x.shape[i], 1, 1, count(x.shape[j+1:])}
	if i != j {
		t.middle, t.second = count(x.shape[i+1:j]), x.shape[j]
	}
	t.run(func(from, to int) { copy(out.data[to:to+t.inner], x.data[from:]) })
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		t.run(func(from, to int) { addTo(g[from:from+t.inner], grad[to:to+t.inner]) })
	})
}

// transposition exchanges first and second of a shape [outer first middle second inner].
type transposition struct{ outer, first, middle, second, inner int }

// run calls f with the old and new offset of each run of inner elements.
func (t transposition) run(f func(from, to int)) {
	if t.inner == 0 {
		return
	}
	for o := range t.outer {
		for a := range t.first {
			for m := range t.middle {
				for b := range t.second {
					f((((o*t.first+a)*t.middle+m)*t.second+b)*t.inner, (((o*t.second+b)*t.middle+m)*t.first+a)*t.inner)
				}
			}
		}
	}
}

// Slice returns the range [lo, hi) of a dimension. A negative dim counts from the last. Slicing the
// first dimension does not copy.
func (tp *Tape) Slice(x *Tensor, dim, lo, hi int) *Tensor {
	if !tp.ready("slice", x) {
		return tp.void()
	}
	d, ok := x.axis(dim)
	if !ok || lo < 0 || hi < lo || hi > x.shape[d] {
		return tp.fail("slice: x has shape %v: [%d:%d] of dimension %d is out of range", x, lo, hi, dim)
	}
	before, n, after := x.around(d)
	shape := slices.Clone(x.shape)
	shape[d] = hi - lo
	if before == 1 {
		return tp.view(x, lo*after, shape)
	}
	out := tp.result(shape, x)
	width := (hi - lo) * after
	for i := range before {
		copy(out.data[i*width:(i+1)*width], x.data[(i*n+lo)*after:])
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for i := range before {
			addTo(g[(i*n+lo)*after:(i*n+hi)*after], grad[i*width:(i+1)*width])
		}
	})
}

// Select returns entry i of the first dimension and removes that dimension. It does not copy.
func (tp *Tape) Select(x *Tensor, i int) *Tensor {
	if !tp.ready("select", x) {
		return tp.void()
	}
	if x.dims() < 1 || i < 0 || i >= x.shape[0] {
		return tp.fail("select: x has shape %v: entry %d is out of range", x, i)
	}
	_, _, n := x.around(0)
	return tp.view(x, i*n, x.shape[1:])
}

// Concat joins tensors along a dimension. Their other dimensions must be equal.
func (tp *Tape) Concat(dim int, parts ...*Tensor) *Tensor {
	if !tp.ready("concat", parts...) {
		return tp.void()
	}
	if len(parts) == 0 {
		return tp.fail("concat: got no tensors")
	}
	first := parts[0]
	d, ok := first.axis(dim)
	if !ok {
		return tp.fail("concat: shape %v has no dimension %d", first, dim)
	}
	shape := slices.Clone(first.shape)
	shape[d] = 0
	for _, p := range parts {
		if p.dims() != len(shape) || !slices.Equal(p.shape[:d], shape[:d]) || !slices.Equal(p.shape[d+1:], shape[d+1:]) {
			return tp.fail("concat: shapes %v and %v differ outside dimension %d", first, p, dim)
		}
		shape[d] += p.shape[d]
	}
	parts = slices.Clone(parts)
	out := tp.result(shape, parts...)
	before, n, after := out.around(d)
	each := func(f func(p *Tensor, at, from, width int)) {
		offset := 0
		for _, p := range parts {
			width := p.shape[d] * after
			for i := range before {
				f(p, i*n*after+offset, i*width, width)
			}
			offset += width
		}
	}
	each(func(p *Tensor, at, from, width int) { copy(out.data[at:at+width], p.data[from:]) })
	return tp.record(out, func(grad []float32) {
		each(func(p *Tensor, at, from, width int) {
			if g := tp.gradient(p); g != nil {
				addTo(g[from:from+width], grad[at:at+width])
			}
		})
	})
}

// Gather returns the rows of x (entries of its first dimension) that index selects, in that order.
// A row may be selected more than once: its gradient is the sum. The result is [len(index), …]. An index
// out of range is an error.
func (tp *Tape) Gather(x *Tensor, index []int) *Tensor {
	if !tp.ready("gather", x) {
		return tp.void()
	}
	if x.dims() < 1 || !within(index, x.shape[0]) {
		return tp.fail("gather: x has shape %v: an index is out of range", x)
	}
	_, _, n := x.around(0)
	index = slices.Clone(index)
	out := tp.result(append([]int{len(index)}, x.shape[1:]...), x)
	for i, r := range index {
		copy(out.data[i*n:(i+1)*n], x.data[r*n:])
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for i, r := range index {
			addTo(g[r*n:(r+1)*n], grad[i*n:(i+1)*n])
		}
	})
}

// Scatter returns a zero tensor with the given number of rows (first dimension), to which it adds
// row i of x at index[i]. Rows with the same index are added. index has one entry for each row of x; an
// entry out of range is an error.
func (tp *Tape) Scatter(x *Tensor, index []int, rows int) *Tensor {
	if !tp.ready("scatter", x) {
		return tp.void()
	}
	if x.dims() < 1 || len(index) != x.shape[0] || rows < 0 || !within(index, rows) {
		return tp.fail("scatter: x has shape %v: got %d indices, want one per row, each below %d", x, len(index), rows)
	}
	_, _, n := x.around(0)
	index = slices.Clone(index)
	out := tp.result(append([]int{rows}, x.shape[1:]...), x)
	for i, r := range index {
		addTo(out.data[r*n:(r+1)*n], x.data[i*n:(i+1)*n])
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for i, r := range index {
			addTo(g[i*n:(i+1)*n], grad[r*n:(r+1)*n])
		}
	})
}

func within(index []int, n int) bool {
	return !slices.ContainsFunc(index, func(i int) bool { return i < 0 || i >= n })
}
