package tensor

import "math"

// BatchMean divides the sum of the losses by the length of the first dimension. Only [Tape.KLDiv]
// accepts it.
const BatchMean Reduction = None + 1

// pairLoss computes a loss of each element of x and its target, in float64. dx and dt return the
// derivatives with respect to the two.
type pairLoss struct {
	name      string
	f, dx, dt func(x, t float64) float64
}

// apply broadcasts x and target and reduces the losses. weight, if not nil, multiplies them and is a
// constant.
func (l pairLoss) apply(tp *Tape, x, target, weight *Tensor, r Reduction) *Tensor {
	if r > None && (r != BatchMean || l.name != "kl_div") {
		return tp.fail("%s: got reduction %v, want a known one", l.name, r)
	}
	if r == BatchMean && (x == nil || x.dims() < 1) {
		return tp.fail("%s: x has no dimension to average over", l.name)
	}
	losses := tp.binary(l.name, x, target, l.f,
		func(g, x, t float64) float64 { return g * l.dx(x, t) },
		func(g, x, t float64) float64 { return g * l.dt(x, t) })
	if weight != nil {
		losses = tp.Mul(losses, weight)
	}
	switch r {
	case None:
		return losses
	case Sum:
		return tp.Sum(losses)
	case BatchMean:
		return tp.total(l.name, losses, float64(x.shape[0]))
	}
	return tp.Mean(losses)
}

// L1 computes the absolute difference of two tensors, which broadcast as in Add. The gradient of
// equal elements is 0.
func (tp *Tape) L1(x, target *Tensor, r Reduction) *Tensor {
	slope := func(x, t float64) float64 { return sign(x - t) }
	return pairLoss{"l1", func(x, t float64) float64 { return math.Abs(x - t) }, slope, minus(slope)}.apply(tp, x, target, nil, r)
}

func minus(f func(x, t float64) float64) func(x, t float64) float64 {
	return func(x, t float64) float64 { return -f(x, t) }
}

// Huber computes half the squared difference of two tensors up to delta, and beyond it
// delta·(|difference| - delta/2). They broadcast as in Add. delta must be positive; torch's default
// is 1.
func (tp *Tape) Huber(x, target *Tensor, delta float64, r Reduction) *Tensor {
	if !(delta > 0) {
		return tp.fail("huber: got delta %g, want a positive number", delta)
	}
	slope := func(x, t float64) float64 { return min(max(x-t, -delta), delta) }
	return pairLoss{"huber", func(x, t float64) float64 {
		if z := math.Abs(x - t); z > delta {
			return delta * (z - delta/2)
		} else {
			return z * z / 2
		}
	}, slope, minus(slope)}.apply(tp, x, target, nil, r)
}

// KLDiv computes the pointwise Kullback-Leibler divergence target·(log(target) - x) for log
// probabilities x. With logTarget, target holds log probabilities, too. They broadcast as in Add.
// [Mean] is the mean over all elements; [BatchMean] matches the definition of the divergence. A
// target of 0 adds no loss; its own gradient is NaN, as in torch.
func (tp *Tape) KLDiv(x, target *Tensor, logTarget bool, r Reduction) *Tensor {
	if logTarget {
		return pairLoss{"kl_div",
			func(x, t float64) float64 { return math.Exp(t) * (t - x) },
			func(_, t float64) float64 { return -math.Exp(t) },
			func(x, t float64) float64 { return math.Exp(t) * (t - x + 1) }}.apply(tp, x, target, nil, r)
	}
	return pairLoss{"kl_div",
		func(x, t float64) float64 {
			if t == 0 {
				return -t * x
			}
			return t*math.Log(t) - t*x
		},
		func(_, t float64) float64 { return -t },
		func(x, t float64) float64 {
			if t == 0 {
				return math.NaN()
			}
			return math.Log(t) + 1 - x
		}}.apply(tp, x, target, nil, r)
}

// BCEOptions configures the binary cross-entropies.
type BCEOptions struct {
	Reduction Reduction
	// Weight multiplies the loss of each element. PosWeight multiplies that of positive targets,
	// only in [Tape.BCEWithLogits]. They broadcast to the shape of x, and have no gradient. nil
	// means 1.
	Weight, PosWeight *Tensor
}

// BCE computes the binary cross-entropy of probabilities x in [0, 1]. target has x's shape.
// Logarithms are at least -100, so that the loss is finite. [Tape.BCEWithLogits] is more precise.
func (tp *Tape) BCE(x, target *Tensor, o BCEOptions) *Tensor {
	if !tp.bce("bce", x, target, o) {
		return tp.void()
	}
	if o.PosWeight != nil {
		return tp.fail("bce: got PosWeight, which only BCEWithLogits has")
	}
	for i, v := range x.data {
		if !(v >= 0 && v <= 1) {
			return tp.fail("bce: got x = %g at position %d, want a probability", v, i)
		}
	}
	log := func(v float64) float64 { return max(math.Log(v), -100) }
	rest := func(v float64) float64 { return max(math.Log1p(-v), -100) }
	return pairLoss{"bce",
		func(x, t float64) float64 { return (t-1)*rest(x) - t*log(x) },
		func(x, t float64) float64 { return (x - t) / max((1-x)*x, 1e-12) },
		func(x, _ float64) float64 { return rest(x) - log(x) }}.apply(tp, x, target, o.constant(tp), o.Reduction)
}

// constant returns the weight without a gradient, or nil.
func (o BCEOptions) constant(tp *Tape) *Tensor {
	if o.Weight == nil {
		return nil
	}
	return tp.Detach(o.Weight)
}

func (tp *Tape) bce(name string, x, target *Tensor, o BCEOptions) bool {
	if !tp.ready(name, x, target) {
		return false
	}
	if !x.is(target.shape...) {
		tp.fail("%s: x has shape %v, target %v, want equal shapes", name, x, target)
		return false
	}
	for _, w := range []*Tensor{o.Weight, o.PosWeight} {
		if w == nil {
			continue
		}
		if !tp.ready(name, w) {
			return false
		}
		if p := tp.pair(x.shape, w.shape); p == nil || count(p.shape) != x.Len() {
			tp.fail("%s: x has shape %v: a weight of shape %v does not broadcast to it", name, x, w)
			return false
		}
	}
	return true
}

// BCEWithLogits computes the binary cross-entropy of σ(x) without overflow. target has x's shape.
func (tp *Tape) BCEWithLogits(x, target *Tensor, o BCEOptions) *Tensor {
	if !tp.bce("bce_with_logits", x, target, o) {
		return tp.void()
	}
	if o.PosWeight == nil {
		return pairLoss{"bce_with_logits",
			func(x, t float64) float64 { return (1-t)*x - logSigmoid(x) },
			func(x, t float64) float64 { return sigmoid(x) - t },
			func(x, _ float64) float64 { return -x }}.apply(tp, x, target, o.constant(tp), o.Reduction)
	}
	// (1 - t)·x - (1 + (posWeight - 1)·t)·logSigmoid(x)
	one := tp.Scalar(1)
	factor := tp.Add(one, tp.Mul(tp.Sub(tp.Detach(o.PosWeight), one), target))
	losses := tp.Sub(tp.Mul(tp.Sub(one, target), x), tp.Mul(factor, tp.LogSigmoid(x)))
	if o.Weight != nil {
		losses = tp.Mul(losses, tp.Detach(o.Weight))
	}
	switch o.Reduction {
	case None:
		return losses
	case Sum:
		return tp.Sum(losses)
	case Mean:
		return tp.Mean(losses)
	}
	return tp.fail("bce_with_logits: got reduction %v, want a known one", o.Reduction)
}

// NLLOptions configures [Tape.NLL]. The zero value ignores [IgnoreIndex] and takes the mean over the
// other labels.
type NLLOptions struct {
	Reduction Reduction
	// Ignore is the label that is excluded from the loss. nil means IgnoreIndex.
	Ignore *int
	// Weight has a factor for each class; Mean divides by the sum of the labels' weights. nil means
	// 1.
	Weight []float32
}

// NLL computes the negative log likelihood of labels under log probabilities x […, classes], with
// one label per row: -Weight[label]·x[label]. The result is a scalar, or with the reduction None it has the
// shape of x without the last dimension. Labels are checked as in [Tape.CrossEntropy]. The mean of no
// labels is NaN, and its gradient 0.
func (tp *Tape) NLL(x *Tensor, labels []int, o NLLOptions) *Tensor {
	if !tp.ready("nll", x) {
		return tp.void()
	}
	n := x.last()
	ce := CrossEntropyOptions{Reduction: o.Reduction, Ignore: o.Ignore}
	if x.dims() < 1 || !tp.checkLabels("nll", ce, labels, x.outer(), n) || o.Weight != nil && len(o.Weight) != n {
		return tp.fail("nll: x has shape %v with %d weights, want [… classes] and a weight per class", x, len(o.Weight))
	}
	weights, losses := make([]float32, len(labels)), make([]float32, len(labels))
	div := 0.0
	for r, l := range labels {
		if l == ce.ignore() {
			continue
		}
		if weights[r] = 1; o.Weight != nil {
			weights[r] = o.Weight[l]
		}
		losses[r] = -weights[r] * x.data[r*n+l]
		div += float64(weights[r])
	}
	if o.Reduction != Mean {
		div = 1
	}
	chosen := append([]int(nil), labels...)
	out := tp.reduced(losses, x.shape[:x.dims()-1], ce, div, x)
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		for r, l := range chosen {
			if l == ce.ignore() {
				continue
			}
			up := grad[0]
			if o.Reduction == None {
				up = grad[r]
			}
			g[r*n+l] -= float32(float64(up) * float64(weights[r]) / div)
		}
	})
}
