package tensor

import (
	"slices"

	"github.com/heftai/heft/internal/kernels/matmul"
)

// headLogits bounds the logits that LinearCrossEntropy holds at a time, in elements.
const headLogits = 24 << 20

// LinearCrossEntropy computes CrossEntropy of Linear(x, weight, nil). x is […, width], weight is
// [classes, width], and each row of x has one label. It holds the logits of a few rows at a time
// and computes the gradient together with the loss, so it supports only the Mean and Sum
// reductions. It needs memory for the gradients of x and weight until Backward.
func (tp *Tape) LinearCrossEntropy(x, weight *Tensor, labels []int, o CrossEntropyOptions) *Tensor {
	const name = "linear_cross_entropy"
	if !tp.ready(name, x, weight) {
		return tp.void()
	}
	if x.dims() < 1 || weight.dims() != 2 || weight.shape[1] != x.last() {
		return tp.fail("%s: x has shape %v, weight %v, want [… width] and [classes width]", name, x, weight)
	}
	if o.perRow() {
		return tp.fail("%s: x has shape %v: got no reduction, want tensor.Mean or tensor.Sum", name, x)
	}
	if !tp.checkLabels(name, o, labels, x.outer(), weight.shape[0]) {
		return tp.void()
	}
	if tp.autocast == Float16 { // logits, and their gradients, are in it
		return tp.CrossEntropy(tp.Linear(x, weight, nil), labels, o)
	}
	h := &head{tp: tp, o: o, div: o.divisor(labels), width: x.last(), classes: weight.shape[0], w: weight.data}
	out := tp.result(nil, x, weight)
	h.mul = tp.products()
	if out.needs && x.needs {
		h.dx = tp.borrow(len(x.data))
		clear(h.dx)
	}
	if out.needs && weight.needs {
		h.dw = tp.ahead(weight)
	}
	h.run(x.data, labels)
	out.data[0] = float32(h.sum / h.div)
	return tp.recordOnce("linear_cross_entropy", out, func(grad []float32) {
		tp.adopt(x, h.dx, grad[0])
		tp.adopt(weight, h.dw, grad[0])
	})
}

// head is one pass over the rows of a language model's output layer.
type head struct {
	tp             *Tape
	o              CrossEntropyOptions
	div, sum       float64
	width, classes int
	w, dx, dw      []float32
	begun          bool // dw has the sum of some rows
	mul            func(matmul.Product)
}

// run processes the rows that have a label, some at a time.
func (h *head) run(x []float32, labels []int) {
	rows := make([]int, 0, len(labels))
	for r, l := range labels {
		if l != h.o.ignore() {
			rows = append(rows, r)
		}
	}
	step := max(headLogits/max(h.classes, 1), 32)
	parts := max((len(rows)+step-1)/step, 1)
	step = max((len(rows)+parts-1)/parts, 1)
	logits := h.tp.borrow(step * h.classes)
	part, back := h.tp.borrow(step*h.width), h.tp.borrow(step*h.width)
	for some := range slices.Chunk(rows, step) {
		for i, r := range some {
			copy(part[i*h.width:(i+1)*h.width], x[r*h.width:])
		}
		h.chunk(logits, part, back, some, labels)
	}
	h.tp.giveBack(logits)
	h.tp.giveBack(part)
	h.tp.giveBack(back)
	if !h.begun {
		clear(h.dw)
	}
}

// chunk adds the losses of some rows, gathered in x, and their gradients.
func (h *head) chunk(logits, x, back []float32, rows, labels []int) {
	n, tp := len(rows), h.tp
	losses := make([]float32, n)
	h.mul(matmul.Product{C: dense(logits, h.classes), A: matmul.Rows(x, h.width), B: matmul.Columns(h.w, h.width), Rows: n, Cols: h.classes, N: h.width})
	ids := make([]int32, n)
	for i, r := range rows {
		ids[i] = int32(labels[r])
	}
	var gradient []float32
	if h.dx != nil || h.dw != nil {
		gradient = logits[:n*h.classes]
	}
	tp.crossEntropy(losses, gradient, logits[:n*h.classes], ids, float32(1/h.div), h.o)
	for _, v := range losses {
		h.sum += float64(v)
	}
	if h.dx != nil {
		h.mul(matmul.Product{C: dense(back, h.width), A: matmul.Rows(logits, h.classes), B: matmul.Rows(h.w, h.width), Rows: n, Cols: h.width, N: h.classes})
		for i, r := range rows {
			copy(h.dx[r*h.width:(r+1)*h.width], back[i*h.width:])
		}
	}
	if h.dw != nil {
		h.mul(matmul.Product{C: dense(h.dw, h.width), A: matmul.Columns(logits, h.classes), B: matmul.Rows(x, h.width), Rows: h.classes, Cols: h.width, N: n, Add: h.begun})
		h.begun = true
	}
}

// ahead returns memory for a gradient that is computed before Backward: a parameter's spare
// gradient, or scratch.
func (tp *Tape) ahead(t *Tensor) []float32 {
	if p := t.param; p != nil && p.grad == nil {
		if g := p.takeSpare(len(t.data)); g != nil {
			return g
		}
	}
	return tp.borrow(len(t.data))
}

// adopt adds src·by to t's gradient. If t has no gradient yet, the buffer itself becomes the
// gradient.
func (tp *Tape) adopt(t *Tensor, src []float32, by float32) {
	switch {
	case !t.needs:
		return
	case t.param != nil && t.param.kept == nil && t.param.grad == nil:
		t.param.grad = src
	case t.param == nil && t.base == nil && t.grad == nil:
		t.grad = src
	default:
		dst := tp.gradient(t)
		tp.ranges(len(dst), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				dst[i] += src[i] * by
			}
		})
		tp.giveBack(src)
		return
	}
	if by != 1 {
		tp.ranges(len(src), func(lo, hi int) { scaleBy(src[lo:hi], by) })
	}
}

// products returns the matrix multiplication in the current precision.
func (tp *Tape) products() func(matmul.Product) {
	rounded := tp.autocast == BFloat16
	return func(p matmul.Product) {
		p.Rounded = rounded
		tp.gemm.Mul(p)
	}
}
