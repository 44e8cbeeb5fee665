package tensor

import (
	"math"

	"github.com/heftai/heft/internal/backend/cpu"
)

// Reduction says how the losses of many elements become one tensor.
type Reduction uint8

// The reductions. The mean of no elements is NaN.
const (
	Mean Reduction = iota
	Sum
	None // no reduction: one loss for each element
)

// String returns torch's name.
func (r Reduction) String() string {
	switch r {
	case Mean:
		return "mean"
	case Sum:
		return "sum"
	case None:
		return "none"
	case BatchMean:
		return "batchmean"
	}
	return "unknown"
}

// IgnoreIndex is the label that is excluded from the loss, unless CrossEntropyOptions.Ignore sets
// another.
const IgnoreIndex = -100

// CrossEntropyOptions configures the cross-entropies. The zero value ignores [IgnoreIndex] and
// takes the mean over the other labels.
type CrossEntropyOptions struct {
	Reduction Reduction
	// Ignore is the label that is excluded from the loss. nil means IgnoreIndex.
	Ignore *int
	// Smoothing is the share of the target probability that is spread over all classes.
	Smoothing float64
	// Items, if positive, is the divisor of the sum and replaces Reduction: the number of labels
	// over all micro batches and ranks of a step.
	Items float64
}

func (o CrossEntropyOptions) ignore() int {
	if o.Ignore != nil {
		return *o.Ignore
	}
	return IgnoreIndex
}

// divisor returns the number by which the sum of the losses is divided.
func (o CrossEntropyOptions) divisor(labels []int) float64 {
	if o.Items > 0 {
		return o.Items
	}
	if o.Reduction != Mean {
		return 1
	}
	n := 0
	for _, l := range labels {
		if l != o.ignore() {
			n++
		}
	}
	return float64(n)
}

// checkLabels reports invalid labels.
func (tp *Tape) checkLabels(name string, o CrossEntropyOptions, labels []int, rows, classes int) bool {
	if len(labels) != rows {
		tp.fail("%s: got %d labels for %d rows, want one per row", name, len(labels), rows)
		return false
	}
	if o.Reduction > None || o.Smoothing < 0 || o.Smoothing > 1 || math.IsNaN(o.Smoothing) {
		tp.fail("%s: invalid reduction %d or label smoothing %g", name, o.Reduction, o.Smoothing)
		return false
	}
	for i, l := range labels {
		if l != o.ignore() && (l < 0 || l >= classes) {
			tp.fail("%s: got label %d at position %d, want one below %d", name, l, i, classes)
			return false
		}
	}
	return true
}

// CrossEntropy computes the loss of labels under the softmax of logits […, classes], with one label
// per row: -log p(label), and with Smoothing s (1-s) times that plus s times the mean of -log p over all
// classes. The result is a scalar, or with the reduction None it has the shape of logits without the last
// dimension. A label that is neither ignored nor from 0 to classes-1 is an error. If the logits come from
// a linear layer, [Tape.LinearCrossEntropy] needs less memory.
func (tp *Tape) CrossEntropy(logits *Tensor, labels []int, o CrossEntropyOptions) *Tensor {
	if !tp.ready("cross_entropy", logits) {
		return tp.void()
	}
	rows, n := logits.outer(), logits.last()
	if logits.dims() < 1 || !tp.checkLabels("cross_entropy", o, labels, rows, n) {
		return tp.fail("cross_entropy: logits have shape %v, want [… classes]", logits)
	}
	ids, losses, div := o.classes(labels), make([]float32, rows), o.divisor(labels)
	tp.crossEntropy(losses, nil, logits.data, ids, 0, o)
	out := tp.reduced(losses, logits.shape[:logits.dims()-1], o, div, logits)
	return tp.record(out, func(grad []float32) {
		g, again := tp.gradient(logits), tp.borrow(rows)
		defer tp.giveBack(again)
		if !o.perRow() {
			tp.crossEntropy(again, g, logits.data, ids, float32(float64(grad[0])/div), o)
			return
		}
		each := tp.borrow(len(g))
		defer tp.giveBack(each)
		clear(each)
		tp.crossEntropy(again, each, logits.data, ids, 1, o)
		tp.rows(rows, n, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				tp.set.Vector.AddScaled(g[r*n:(r+1)*n], each[r*n:], grad[r])
			}
		})
	})
}

// classes returns the labels as the backend expects them: -1 for excluded ones.
func (o CrossEntropyOptions) classes(labels []int) []int32 {
	ids := make([]int32, len(labels))
	for i, l := range labels {
		if ids[i] = int32(l); l == o.ignore() {
			ids[i] = -1
		}
	}
	return ids
}

// crossEntropy sets losses to those of rows of logits and adds scale times their gradients to
// dlogits. dlogits may be nil, or logits to replace them.
func (tp *Tape) crossEntropy(losses, dlogits, logits []float32, labels []int32, scale float32, o CrossEntropyOptions) {
	if len(logits) == 0 {
		clear(losses)
		return
	}
	n := len(logits) / len(labels)
	tp.compute("cross_entropy", func(b *cpu.Backend) {
		b.CrossEntropy(losses, matrixOf(dlogits, n), matrixOf(logits, n), labels, scale, float32(o.Smoothing))
	})
}

// perRow reports whether the losses are not reduced.
func (o CrossEntropyOptions) perRow() bool { return o.Reduction == None && o.Items <= 0 }

// reduced returns the result for the losses.
func (tp *Tape) reduced(losses []float32, shape []int, o CrossEntropyOptions, div float64, ins ...*Tensor) *Tensor {
	if o.perRow() {
		return tp.made(losses, shape, ins...)
	}
	var sum float64
	for _, v := range losses {
		sum += float64(v)
	}
	return tp.made([]float32{float32(sum / div)}, nil, ins...)
}

// CausalLoss computes a language model's loss: CrossEntropy of logits [batch, length, classes] at
// each position with the next position's label. labels has one label per position and is not
// shifted.
func (tp *Tape) CausalLoss(logits *Tensor, labels []int, o CrossEntropyOptions) *Tensor {
	if !tp.ready("causal_loss", logits) {
		return tp.void()
	}
	if logits.dims() != 3 {
		return tp.fail("causal_loss: logits have shape %v, want [batch length classes]", logits)
	}
	shifted := ShiftLabels(labels, logits.shape[1], o)
	if shifted == nil && len(labels) > 0 {
		return tp.fail("causal_loss: got %d labels for logits of shape %v, want one per position", len(labels), logits)
	}
	return tp.CrossEntropy(logits, shifted, o)
}

// ShiftLabels moves the labels of sequences of the given length one position to the left, so that
// each position has the next one's label and the last has none. It returns nil if len(labels) is
// not a multiple of length.
func ShiftLabels(labels []int, length int, o CrossEntropyOptions) []int {
	if length <= 0 || len(labels)%length != 0 {
		return nil
	}
	shifted := make([]int, len(labels))
	for i := range labels {
		shifted[i] = o.ignore()
		if (i+1)%length != 0 {
			shifted[i] = labels[i+1]
		}
	}
	return shifted
}

// MSE computes the squared difference of two tensors of equal shape.
func (tp *Tape) MSE(a, b *Tensor, r Reduction) *Tensor {
	if !tp.ready("mse", a, b) {
		return tp.void()
	}
	if !a.is(b.shape...) || r > None {
		return tp.fail("mse: got shapes %v and %v and reduction %v, want equal shapes and a known reduction", a, b, r)
	}
	losses := make([]float32, len(a.data))
	for i, v := range a.data {
		d := v - b.data[i]
		losses[i] = d * d
	}
	o, div := CrossEntropyOptions{Reduction: r}, 1.0
	if r == Mean {
		div = float64(len(losses))
	}
	out := tp.reduced(losses, a.shape, o, div, a, b)
	return tp.record(out, func(grad []float32) {
		ga, gb := tp.gradient(a), tp.gradient(b)
		for i := range losses {
			up := grad[0]
			if r == None {
				up = grad[i]
			}
			d := float32(float64(2*up*(a.data[i]-b.data[i])) / div)
			if ga != nil {
				ga[i] += d
			}
			if gb != nil {
				gb[i] -= d
			}
		}
	})
}
