package tensor

import (
	"math"
	"slices"
)

// Reduction is how the losses of many elements become one tensor.
type Reduction uint8

// The reductions. The mean over nothing is NaN.
const (
	Mean Reduction = iota
	Sum
	None // no reduction: one loss for each element
)

// String is torch's name.
func (r Reduction) String() string {
	switch r {
	case Mean:
		return "mean"
	case Sum:
		return "sum"
	case None:
		return "none"
	}
	return "unknown"
}

// IgnoreIndex is the label that counts for nothing, unless CrossEntropyOptions say
// otherwise.
const IgnoreIndex = -100

// CrossEntropyOptions of the cross-entropies. The zero value ignores [IgnoreIndex] and
// takes the mean over the other labels.
type CrossEntropyOptions struct {
	Reduction Reduction
	// Ignore is the label that counts for nothing; nil stands for IgnoreIndex.
	Ignore *int
	// Smoothing is the share of a label's weight that is spread over all classes.
	Smoothing float64
	// Items divides the sum, in place of Reduction, where it is positive: the number
	// of labels over all micro batches and ranks of a step.
	Items float64
}

func (o CrossEntropyOptions) ignore() int {
	if o.Ignore != nil {
		return *o.Ignore
	}
	return IgnoreIndex
}

// divisor is what the sum of the losses is divided by.
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

// checkLabels reports what is wrong with the labels of rows of classes.
func (tp *Tape) checkLabels(name string, o CrossEntropyOptions, labels []int, rows, classes int) bool {
	if len(labels) != rows {
		tp.fail("%s: %d labels for %d rows", name, len(labels), rows)
		return false
	}
	if o.Reduction > None || o.Smoothing < 0 || o.Smoothing > 1 || math.IsNaN(o.Smoothing) {
		tp.fail("%s: no reduction %d with label smoothing %g", name, o.Reduction, o.Smoothing)
		return false
	}
	for i, l := range labels {
		if l != o.ignore() && (l < 0 || l >= classes) {
			tp.fail("%s: label %d at position %d, of %d classes", name, l, i, classes)
			return false
		}
	}
	return true
}

// CrossEntropy is the loss of labels under the softmax of logits […, classes], one label
// for each row. [Tape.LinearCrossEntropy] needs less memory where the logits come from a
// linear layer.
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

// perRow reports that the losses stay apart.
func (o CrossEntropyOptions) perRow() bool { return o.Reduction == None && o.Items <= 0 }

// reduced makes the result of losses.
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

// rowLoss is the loss of one row and the logarithm of its sum of exponentials.
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

// CausalLoss is the loss of a language model: CrossEntropy of logits [batch, length,
// classes] at each place with the label of the next; labels are not shifted, one for
// each place.
func (tp *Tape) CausalLoss(logits *Tensor, labels []int, o CrossEntropyOptions) *Tensor {
	if !tp.ready("causal_loss", logits) {
		return tp.void()
	}
	if logits.dims() != 3 {
		return tp.fail("causal_loss: logits have shape %v, want [batch length classes]", logits)
	}
	shifted := ShiftLabels(labels, logits.shape[1], o)
	if shifted == nil && len(labels) > 0 {
		return tp.fail("causal_loss: %d labels for logits of shape %v", len(labels), logits)
	}
	return tp.CrossEntropy(logits, shifted, o)
}

// ShiftLabels moves the labels of sequences of length one place to the left, so that
// each place has the label of the next and the last one has none. It is nil where labels
// are no whole number of sequences.
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

// MSE is the squared difference of two tensors of one shape.
func (tp *Tape) MSE(a, b *Tensor, r Reduction) *Tensor {
	if !tp.ready("mse", a, b) {
		return tp.void()
	}
	if !a.is(b.shape...) || r > None {
		return tp.fail("mse: the shapes are %v and %v, the reduction %v", a, b, r)
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
