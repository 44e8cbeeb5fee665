package tensor

import (
	"cmp"
	"math"
	"slices"
)

// Expand repeats dimensions of length 1, and adds leading dimensions, to get the given shape. -1
// keeps the length of a dimension. The gradient is the sum over the repetitions. If the shape is
// x's, Expand returns x itself.
func (tp *Tape) Expand(x *Tensor, shape ...int) *Tensor {
	if !tp.ready("expand", x) {
		return tp.void()
	}
	shape = slices.Clone(shape)
	lead := len(shape) - x.dims()
	for i, n := range shape {
		switch {
		case n == -1 && i >= lead && lead >= 0:
			shape[i] = x.shape[i-lead]
		case n < 0 || i >= lead && lead >= 0 && x.shape[i-lead] != n && x.shape[i-lead] != 1:
			return tp.fail("expand: x has shape %v, which cannot expand to %v", x, shape)
		}
	}
	if lead < 0 {
		return tp.fail("expand: x has shape %v, which cannot expand to %v", x, shape)
	}
	if x.is(shape...) {
		return x
	}
	w := tp.pair(x.shape, shape)
	out := tp.result(shape, x)
	w.each(func(y, i, _ int) { out.data[y] = x.data[i] })
	return tp.record(out, func(grad []float32) {
		w.reduce(tp.gradient(x), false, func(y, _, _ int) float32 { return grad[y] })
	})
}

// Stack joins tensors of one shape along a new dimension dim. A negative dim counts from the last
// dimension of the result.
func (tp *Tape) Stack(dim int, parts ...*Tensor) *Tensor {
	if !tp.ready("stack", parts...) {
		return tp.void()
	}
	if len(parts) == 0 {
		return tp.fail("stack: got no tensors")
	}
	at := dim
	if at < 0 {
		at += parts[0].dims() + 1
	}
	if at < 0 || at > parts[0].dims() {
		return tp.fail("stack: dimension %d is out of range for tensors of shape %v", dim, parts[0])
	}
	rows := make([]*Tensor, len(parts))
	for i, p := range parts {
		if !p.is(parts[0].shape...) {
			return tp.fail("stack: got shapes %v and %v, want equal shapes", parts[0], p)
		}
		rows[i] = tp.Reshape(p, slices.Insert(slices.Clone(p.shape), at, 1)...)
	}
	return tp.Concat(at, rows...)
}

// Split cuts dimension dim of x into parts of size entries; the last part may be smaller. A negative
// dim counts from the last.
func (tp *Tape) Split(x *Tensor, size, dim int) []*Tensor {
	if !tp.ready("split", x) {
		return nil
	}
	d, ok := x.axis(dim)
	if !ok || size < 0 || size == 0 && x.shape[d] > 0 {
		tp.fail("split: x has shape %v: invalid size %d or dimension %d", x, size, dim)
		return nil
	}
	sizes := []int{}
	for left := x.shape[d]; left > 0; left -= size {
		sizes = append(sizes, min(left, size))
	}
	if len(sizes) == 0 {
		sizes = []int{0}
	}
	return tp.SplitSizes(x, sizes, d)
}

// SplitSizes cuts dimension dim of x into parts of the given sizes, whose sum must be its length.
func (tp *Tape) SplitSizes(x *Tensor, sizes []int, dim int) []*Tensor {
	if !tp.ready("split", x) {
		return nil
	}
	d, ok := x.axis(dim)
	sum := 0
	for _, n := range sizes {
		ok = ok && n >= 0
		sum += n
	}
	if !ok || sum != x.shape[d] {
		tp.fail("split: x has shape %v: got sizes %v of dimension %d, want the dimension's length as their sum", x, sizes, dim)
		return nil
	}
	parts, at := make([]*Tensor, len(sizes)), 0
	for i, n := range sizes {
		parts[i] = tp.Slice(x, d, at, at+n)
		at += n
	}
	return parts
}

// Pad adds elements of the given value around x. pad holds the numbers of elements before and
// after the last dimension, then those of the dimension before it, like torch's F.pad. A negative
// number removes elements.
func (tp *Tape) Pad(x *Tensor, pad []int, value float32) *Tensor {
	if !tp.ready("pad", x) {
		return tp.void()
	}
	if len(pad)%2 != 0 || len(pad)/2 > x.dims() {
		return tp.fail("pad: x has shape %v: got %d numbers, want two for each of at most %d dimensions", x, len(pad), x.dims())
	}
	for i := 0; i < len(pad); i += 2 {
		d := x.dims() - 1 - i/2
		n, before, after := x.shape[d], pad[i], pad[i+1]
		if n+before+after < 0 || -min(before, 0)-min(after, 0) > n {
			return tp.fail("pad: x has shape %v: cannot pad dimension %d by %d and %d", x, d, before, after)
		}
		x = tp.Slice(x, d, -min(before, 0), n+min(after, 0))
		parts := []*Tensor{x}
		if before > 0 {
			parts = slices.Insert(parts, 0, tp.filled(x, d, before, value))
		}
		if after > 0 {
			parts = append(parts, tp.filled(x, d, after, value))
		}
		if len(parts) > 1 {
			x = tp.Concat(d, parts...)
		}
	}
	return x
}

// filled returns a constant with the shape of x, but with n entries in dimension d.
func (tp *Tape) filled(x *Tensor, d, n int, value float32) *Tensor {
	shape := slices.Clone(x.shape)
	shape[d] = n
	return tp.repeated(value, shape...)
}

// repeated returns a constant with all elements equal to value.
func (tp *Tape) repeated(value float32, shape ...int) *Tensor {
	v := make([]float32, count(shape))
	fill(v, value)
	return tp.Input(v, shape...)
}

// CumSum returns the running sums along dim. A negative dim counts from the last.
func (tp *Tape) CumSum(x *Tensor, dim int) *Tensor {
	if !tp.ready("cumsum", x) {
		return tp.void()
	}
	d, ok := x.axis(dim)
	if !ok {
		return tp.fail("cumsum: x has shape %v: dimension %d is out of range", x, dim)
	}
	before, n, after := x.around(d)
	out := tp.result(x.shape, x)
	for r := range before * after {
		sum, at := 0.0, r/after*n*after+r%after
		for range n {
			sum += float64(x.data[at])
			out.data[at] = float32(sum)
			at += after
		}
	}
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for r := range before * after {
			sum, at := 0.0, (r/after*n+n-1)*after+r%after
			for range n {
				sum += float64(grad[at])
				g[at] += float32(sum)
				at -= after
			}
		}
	})
}

// Argmax returns the index of the largest element along dim for each position of the other
// dimensions, in row-major order. Of equal elements the first counts, and NaN counts as the largest.
// A negative dim counts from the last. The result has no gradient.
func (tp *Tape) Argmax(x *Tensor, dim int) []int {
	if !tp.ready("argmax", x) {
		return nil
	}
	d, ok := x.axis(dim)
	if !ok || x.shape[d] == 0 {
		tp.fail("argmax: x has shape %v: dimension %d is out of range or empty", x, dim)
		return nil
	}
	before, n, after := x.around(d)
	index := make([]int, before*after)
	for r := range index {
		at := r/after*n*after + r%after
		best := x.data[at]
		for j := 1; j < n && best == best; j++ {
			if v := x.data[at+j*after]; v > best || v != v {
				best, index[r] = v, j
			}
		}
	}
	return index
}

// TopK returns the k largest elements along dim in descending order, and their indices along dim
// in row-major order. If smallest is set, it returns the k smallest in ascending order. Of equal
// elements the first comes first, and NaN counts as the largest. A negative dim counts from the
// last. The gradient goes to the selected elements.
func (tp *Tape) TopK(x *Tensor, k, dim int, smallest bool) (values *Tensor, index []int) {
	if !tp.ready("topk", x) {
		return tp.void(), nil
	}
	d, ok := x.axis(dim)
	if !ok || k < 0 || k > x.shape[d] {
		return tp.fail("topk: x has shape %v: got k = %d of dimension %d", x, k, dim), nil
	}
	before, n, after := x.around(d)
	shape := slices.Clone(x.shape)
	shape[d] = k
	values, index = tp.result(shape, x), make([]int, before*k*after)
	from, order := make([]int, len(index)), make([]int, n)
	for r := range before * after {
		base := r/after*n*after + r%after
		for j := range order {
			order[j] = j
		}
		slices.SortStableFunc(order, func(i, j int) int {
			a, b := x.data[base+i*after], x.data[base+j*after]
			if smallest {
				return compareNaN(a, b)
			}
			return compareNaN(b, a)
		})
		for j := range k {
			at := (r/after*k+j)*after + r%after
			index[at], from[at] = order[j], base+order[j]*after
			values.data[at] = x.data[from[at]]
		}
	}
	return tp.record(values, func(grad []float32) {
		g := tp.gradient(x)
		for i, at := range from {
			g[at] += grad[i]
		}
	}), index
}

// compareNaN compares numbers, with NaN as the largest.
func compareNaN(a, b float32) int {
	switch {
	case a != a && b != b:
		return 0
	case a != a:
		return 1
	case b != b:
		return -1
	}
	return cmp.Compare(a, b)
}

// Detach returns x as a constant, at which Backward stops. It shares x's data.
func (tp *Tape) Detach(x *Tensor) *Tensor {
	if !tp.ready("detach", x) {
		return tp.void()
	}
	out := &Tensor{tape: tp, data: x.data, shape: slices.Clone(x.shape), pass: tp.pass}
	x.root().lent = false // the memory may be read after the pass
	return out
}

var negativeInfinity = float32(math.Inf(-1))
