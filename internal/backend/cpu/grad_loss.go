package cpu

import (
	"iter"
	"math"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// RouteGrad computes the scores again, in float64.
func (b *Backend) RouteGrad(dlogits tensor.Tensor, dweights []float32, experts []int32, logits tensor.Tensor, a *meta.MoESpec) {
	if b.failed.Load() {
		return
	}
	rows, n, k := logits.Rows(), logits.Cols(), a.TopK
	in, ok1 := b.floats("route gradient", "logits", logits, rows, n)
	out, ok2 := b.floats("route gradient", "gradient", dlogits, rows, n)
	if !ok1 || !ok2 || !b.inside("route gradient", experts, n) {
		return
	}
	if a.Score == meta.ScoreSparseMixer || a.Score == meta.ScoreSqrtSoftplus {
		b.fail("route gradient: ScoreSparseMixer and ScoreSqrtSoftplus have none")
		return
	}
	if k <= 0 || len(experts) != rows*k || len(dweights) != rows*k {
		b.fail("route gradient: %d weights of %d experts for %d rows of %d", len(dweights), len(experts), rows, k)
		return
	}
	b.each(rows, 16*n, func(_ *worker, r int) {
		chosen, g := experts[r*k:][:k], dweights[r*k:][:k]
		routeGrad(row(out, r, n), row(in, r, n), chosen, g, a)
	})
}

// routeGrad adds the gradient of one row.
func routeGrad(dst, logits []float32, chosen []int32, dweights []float32, a *meta.MoESpec) {
	k, sigmoid := len(chosen), a.Score == meta.ScoreSigmoid || a.Score == meta.ScoreTopKSigmoid
	score, grad := make([]float64, k), make([]float64, k)
	top, all := math.Inf(-1), 0.0
	competing := competingLogits(logits, chosen, a)
	for l := range competing {
		top = max(top, l)
	}
	for l := range competing {
		all += math.Exp(l - top)
	}
	total, along := 0.0, 0.0
	for i, e := range chosen {
		l := float64(logits[e])
		score[i] = math.Exp(l-top) / all
		if sigmoid {
			score[i] = 1 / (1 + math.Exp(-l))
		}
		grad[i] = float64(dweights[i])
		if a.Scale != 0 {
			grad[i] *= float64(a.Scale)
		}
		total += score[i]
		along += grad[i] * score[i]
	}
	if a.Renormalise {
		if sigmoid {
			total += leastSum
		}
		for i := range grad {
			grad[i] = (grad[i] - along/total) / total
		}
	}
	if sigmoid {
		for i, e := range chosen {
			dst[e] += float32(grad[i] * score[i] * (1 - score[i]))
		}
		return
	}
	mean := 0.0
	for i, g := range grad {
		mean += g * score[i]
	}
	for i, e := range chosen {
		dst[e] += float32(grad[i] * score[i])
	}
	if a.Score == meta.ScoreTopKSoftmax {
		for i, e := range chosen {
			dst[e] -= float32(mean * score[i])
		}
		return
	}
	for e, l := range logits {
		dst[e] -= float32(mean * math.Exp(float64(l)-top) / all)
	}
}

// competingLogits are the logits over which the router's softmax runs.
func competingLogits(logits []float32, chosen []int32, a *meta.MoESpec) iter.Seq[float64] {
	return func(yield func(float64) bool) {
		if a.Score == meta.ScoreTopKSoftmax {
			for _, e := range chosen {
				if !yield(float64(logits[e])) {
					return
				}
			}
			return
		}
		for _, l := range logits {
			if !yield(float64(l)) {
				return
			}
		}
	}
}

// CrossEntropy takes a row at a time.
func (b *Backend) CrossEntropy(losses []float32, dlogits, logits tensor.Tensor, labels []int32, scale, smoothing float32) {
	if b.failed.Load() {
		return
	}
	rows, n := logits.Rows(), logits.Cols()
	in, ok1 := b.floats("cross-entropy", "logits", logits, rows, n)
	out, ok2 := b.optional("cross-entropy", "gradient", dlogits, rows, n)
	if !ok1 || !ok2 {
		return
	}
	if len(losses) != rows || len(labels) != rows {
		b.fail("cross-entropy: %d losses of %d labels for %d rows", len(losses), len(labels), rows)
		return
	}
	for i, l := range labels {
		if int(l) >= n {
			b.fail("cross-entropy: label %d of row %d, of %d classes", l, i, n)
			return
		}
	}
	inPlace := out.V != nil && &out.V[0] == &in.V[0]
	if !inPlace && !b.reserve(n) {
		return
	}
	b.each(rows, 4*n, func(w *worker, r int) {
		x, label := row(in, r, n), int(labels[r])
		losses[r] = 0
		switch {
		case label < 0 && inPlace:
			clear(x)
		case label < 0:
		case inPlace:
			losses[r] = crossEntropy(b.set, x, label, scale, smoothing)
		default:
			g := w.scratch.v[:n]
			copy(g, x)
			losses[r] = crossEntropy(b.set, g, label, scale, smoothing)
			if out.V != nil {
				b.set.Vector.AddScaled(row(out, r, n), g, 1)
			}
		}
	})
}

// crossEntropy is the loss of a row of logits, which it replaces by scale times the loss's
// gradient for them.
func crossEntropy(set *kernels.Set, x []float32, label int, scale, smoothing float32) float32 {
	at, level, share := float64(x[label]), 0.0, float64(smoothing)
	if smoothing > 0 {
		level = sum(x) / float64(len(x))
	}
	top := set.Vector.ScaleMax(x, 1)
	total := set.Vector.ExpSum(x, top)
	lse := float64(top) + math.Log(float64(total))
	by, spread := float32(float64(scale)/float64(total)), float32(share*float64(scale)/float64(len(x)))
	set.Vector.ScaleShift(x, by, spread)
	x[label] -= float32((1 - share) * float64(scale))
	return float32(lse - (1-share)*at - share*level)
}
