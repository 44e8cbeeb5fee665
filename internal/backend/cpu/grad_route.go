package cpu

import (
	"iter"
	"math"
	"slices"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// RouteGrad recomputes the scores, in float64.
func (b *Backend) RouteGrad(dlogits tensor.Tensor, dweights []float32, experts []int32, logits tensor.Tensor, a *meta.MoESpec) {
	if b.failed.Load() {
		return
	}
	rows, n, k := logits.Rows(), logits.Cols(), a.Chosen()
	in, ok1 := b.floats("route gradient", "logits", logits, rows, n)
	out, ok2 := b.floats("route gradient", "gradient", dlogits, rows, n)
	if !ok1 || !ok2 || !b.inside("route gradient", experts, n) {
		return
	}
	if k <= 0 || len(experts) != rows*k || len(dweights) != rows*k {
		b.fail("route gradient: %d weights of %d experts for %d rows of %d", len(dweights), len(experts), rows, k)
		return
	}
	b.each(rows, 16*n, func(_ *worker, r int) {
		chosen, g := experts[r*k:][:k], dweights[r*k:][:k]
		if a.Score == meta.ScoreSparseMixer {
			sparseMixerGrad(row(out, r, n), row(in, r, n), chosen, g, a.Jitter)
		} else {
			routeGrad(row(out, r, n), row(in, r, n), chosen, g, a)
		}
	})
}

// routeGrad adds the gradient of one row.
func routeGrad(dst, logits []float32, chosen []int32, dweights []float32, a *meta.MoESpec) {
	k, alone := len(chosen), a.Score == meta.ScoreSigmoid || a.Score == meta.ScoreTopKSigmoid || a.Score == meta.ScoreSqrtSoftplus
	score, slope, grad := make([]float64, k), make([]float64, k), make([]float64, k)
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
		if score[i] = math.Exp(l-top) / all; alone {
			score[i], slope[i] = scoreAlone(l, a.Score)
		}
		grad[i] = float64(dweights[i])
		if a.Scale != 0 {
			grad[i] *= float64(a.Scale)
		}
		total += score[i]
		along += grad[i] * score[i]
	}
	if a.Renormalise {
		if alone && a.Scored == nil {
			total += leastSum
		}
		for i := range grad {
			grad[i] = (grad[i] - along/total) / total
		}
	}
	if alone {
		for i, e := range chosen {
			dst[e] += float32(grad[i] * slope[i])
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

// competingLogits returns the logits that the router's softmax ranges over.
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

// scoreAlone returns the score of an expert, for scores that depend only on its own logit, and
// its derivative.
func scoreAlone(l float64, s meta.RouterScore) (score, slope float64) {
	share := 1 / (1 + math.Exp(-l))
	if s != meta.ScoreSqrtSoftplus {
		return share, share * (1 - share)
	}
	score = math.Sqrt(max(l, 0) + math.Log1p(math.Exp(-math.Abs(l))))
	return score, share / (2 * score)
}

// sparseMixerGrad adds the gradient of one row of ScoreSparseMixer. The weight of each choice is its softmax over the logits
// that are close to it, without those of earlier choices.
func sparseMixerGrad(dst, logits []float32, chosen []int32, dweights []float32, jitter float32) {
	for i, e := range chosen {
		best, total := logits[e], 0.0
		close := func(yield func(j int, share float64) bool) {
			for j, v := range logits {
				if !slices.Contains(chosen[:i], int32(j)) && closeTo(best, v, v, jitter) && !yield(j, math.Exp(float64(v)-float64(best))) {
					return
				}
			}
		}
		for _, share := range close {
			total += share
		}
		along := float64(dweights[i]) / total // times the weight
		for j, share := range close {
			dst[j] -= float32(along * share / total)
		}
		dst[e] += float32(along)
	}
}
