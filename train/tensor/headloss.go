package tensor

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	view "github.com/heftai/heft/internal/tensor"
)

// headLogits is the maximum number of logits that LinearCrossEntropy holds at a time.
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
	if tp.autocast == Float16 { // logits and their gradients are in float16
		return tp.CrossEntropy(tp.Linear(x, weight, nil), labels, o)
	}
	h := &head{tp: tp, o: o, by: float32(1 / o.divisor(labels)), width: x.last(), classes: weight.shape[0], w: weight.data}
	h.rounded = tp.autocast == BFloat16
	out := tp.result(nil, x, weight)
	if out.needs && x.needs {
		h.dx = tp.borrow(len(x.data))
		clear(h.dx)
	}
	if out.needs && weight.needs {
		h.dw = tp.ahead(weight)
		clear(h.dw)
	}
	tp.compute(name, func(b *cpu.Backend) { h.run(b, x.data, labels) })
	out.data[0] = float32(h.sum / o.divisor(labels))
	return tp.recordOnce(name, out, func(grad []float32) {
		tp.adopt(x, h.dx, grad[0])
		tp.adopt(weight, h.dw, grad[0])
	})
}

// head is one pass over the rows of a language model's output layer.
type head struct {
	tp             *Tape
	o              CrossEntropyOptions
	by             float32 // scale of the gradients
	sum            float64 // of the losses
	width, classes int
	w, dx, dw      []float32
	rounded        bool
}

// run processes the rows that have a label, some at a time.
func (h *head) run(b *cpu.Backend, x []float32, labels []int) {
	rows, ids := make([]int32, 0, len(labels)), make([]int32, 0, len(labels))
	for r, l := range labels {
		if l != h.o.ignore() {
			rows, ids = append(rows, int32(r)), append(ids, int32(l))
		}
	}
	if h.width == 0 || len(rows) == 0 {
		h.sum = float64(len(rows)) * math.Log(float64(h.classes))
		return
	}
	step := max(headLogits/max(h.classes, 1), 32)
	parts := (len(rows) + step - 1) / step
	step = (len(rows) + parts - 1) / parts
	logits := h.tp.borrow(step * h.classes)
	part, back := h.tp.borrow(step*h.width), h.tp.borrow(step*h.width)
	for at := 0; at < len(rows); at += step {
		end := min(at+step, len(rows))
		h.chunk(b, logits, part, back, x, rows[at:end], ids[at:end])
	}
	h.tp.giveBack(logits)
	h.tp.giveBack(part)
	h.tp.giveBack(back)
}

// chunk adds the losses of some rows of x, and their gradients.
func (h *head) chunk(b *cpu.Backend, logits, part, back, x []float32, rows, ids []int32) {
	n := len(rows)
	losses := make([]float32, n)
	weight := backend.Matrix{Tensor: matrixOf(h.w, h.width)}
	in, scores := matrixOf(part[:n*h.width], h.width), matrixOf(logits[:n*h.classes], h.classes)
	b.Gather(in, matrixOf(x, h.width), rows)
	b.Product(scores, in, weight, view.Tensor{}, h.rounded)
	var gradient view.Tensor
	if h.dx != nil || h.dw != nil {
		gradient = scores // replaces the logits
	}
	b.CrossEntropy(losses, gradient, scores, ids, h.by, float32(h.o.Smoothing))
	for _, v := range losses {
		h.sum += float64(v)
	}
	if gradient.IsZero() {
		return
	}
	var dx view.Tensor
	if h.dx != nil {
		clear(back[:n*h.width])
		dx = matrixOf(back[:n*h.width], h.width)
	}
	b.LinearGrad(dx, backend.Matrix{Tensor: matrixOf(h.dw, h.width)}, view.Tensor{}, scores, in, weight, h.rounded)
	if h.dx != nil {
		for i, r := range rows {
			copy(h.dx[int(r)*h.width:][:h.width], back[i*h.width:])
		}
	}
}

// ahead returns memory for a gradient that is computed before Backward: a parameter's spare
// gradient, or scratch memory.
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
