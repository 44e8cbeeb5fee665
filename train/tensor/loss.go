package tensor

import (
	"math"
	"slices"
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
	// Items, if positive, is what the sum is divided by, instead of Reduction: the number of labels
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
// per row. If the logits come from a linear layer, [Tape.LinearCrossEntropy] needs less memory.
func (tp *Tape) CrossEntropy(logits *Tensor, labels []int, o CrossEntropyOptions) *Tensor {
	if !tp.ready("cross_entropy", logits) {
		return tp.void()
	}
	rows, n := logits.outer(), logits.last()
	if logits.dims() < 1 || !tp.checkLabels("cross_entropy", o, labels, rows, n) {
		return tp.fail("cross_entropy: logits have shape %v, want [… classes]", logits)
	}
	labels = slices.Clone(labels)
	losses, lse := make([]float32, rows), make([]float32, rows)
	tp.rows(rows, n, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			losses[r], lse[r] = tp.rowLoss(logits.data[r*n:(r+1)*n], labels[r], o)
		}
	})
	div := o.divisor(labels)
	out := tp.reduced(losses, logits.shape[:logits.dims()-1], o, div, logits)
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(logits)
		tp.rows(rows, n, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				up := float64(grad[0]) / div
				if o.perRow() {
					up = float64(grad[r])
				}
				rowLossBack(g[r*n:(r+1)*n], logits.data[r*n:(r+1)*n], lse[r], labels[r], float32(up), o)
			}
		})
	})
}

// perRow reports whether the losses are not reduced.
func (o CrossEntropyOptions) perRow() bool { return o.Reduction == None && o.Items <= 0 }

// reduced makes the result from the losses.
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

// rowLoss returns the loss of one row and the logarithm of its sum of exponentials.
func (tp *Tape) rowLoss(row []float32, label int, o CrossEntropyOptions) (loss, lse float32) {
	if label == o.ignore() {
		return 0, 0
	}
	lse = tp.logSumExp(row)
	loss = lse - row[label]
	if o.Smoothing > 0 {
		var sum float64
		for _, v := range row {
			sum += float64(lse - v)
		}
		loss = float32((1-o.Smoothing)*float64(loss) + o.Smoothing*sum/float64(len(row)))
	}
	return loss, lse
}

// rowLossBack adds up·(softmax - target) to dx.
func rowLossBack(dx, row []float32, lse float32, label int, up float32, o CrossEntropyOptions) {
	if label == o.ignore() {
		return
	}
	spread := up * float32(o.Smoothing/float64(len(row)))
	for i, v := range row {
		dx[i] += up*float32(math.Exp(float64(v-lse))) - spread
	}
	dx[label] -= up * float32(1-o.Smoothing)
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
