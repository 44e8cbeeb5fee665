package cpu

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// leastSum prevents a division by zero when DeepSeek's sigmoid scores are renormalised.
const leastSum = 1e-20

type route struct {
	experts    []int32
	weights    []float32
	logits     mat.Floats
	correction []float32
	spec       *meta.MoESpec
	rows, n    int
}

// Route ranks experts by score plus correction, and computes weights from the scores. Of equal
// ranks the lower index comes first; NaN ranks highest. A group ranks by its best score or, with
// GroupsByTwo, by the sum of its best two, as in DeepSeek V2 and V3. ScoreSparseMixer ranks by
// logits only. If the spec has a table, the experts are given. Scored experts are the last ones
// of each row.
func (b *Backend) Route(experts []int32, weights []float32, logits, correction tensor.Tensor, a *meta.MoESpec) {
	if b.failed.Load() {
		return
	}
	rows, n := logits.Rows(), logits.Cols()
	scored := a.Chosen() - a.TopK
	ranked := n - scored
	in, ok1 := b.floats("route", "logits", logits, rows, n)
	c, ok2 := b.vector("route", "correction", correction, slotCorrection, ranked)
	if !ok1 || !ok2 {
		return
	}
	kept := ranked
	if a.Groups > 0 && n%a.Groups == 0 {
		kept = n / a.Groups * a.TopGroups
	}
	if a.TopK <= 0 || a.TopK > kept || a.Groups > 0 && n%a.Groups != 0 || a.TopGroups > a.Groups ||
		scored > 0 && (a.Groups > 0 || a.Score != meta.ScoreSigmoid || a.Table != "") ||
		len(experts) != rows*a.Chosen() || len(weights) != rows*a.Chosen() {
		b.fail("route: %d of %d experts in %d of %d groups, and %d scored ones, for %d rows into %d", a.TopK, ranked, a.TopGroups, a.Groups, scored, rows, len(experts))
		return
	}
	if !b.reserve(2*n + a.Groups) {
		return
	}
	b.route = route{experts: experts, weights: weights, logits: in, correction: c, spec: a, rows: rows, n: n}
	b.run(&b.route, rows, rows*n*a.TopK)
}

func (op *route) run(w *worker, unit int) {
	n, k := op.n, op.spec.Chosen()
	scores, ranks, groups := w.scratch.v[:n], w.scratch.v[n:2*n], w.scratch.v[2*n:][:op.spec.Groups]
	copy(scores, row(op.logits, unit, n))
	if op.spec.Score == meta.ScoreSparseMixer {
		copy(ranks, scores)
		sparseMixer(op.experts[unit*k:][:k], op.weights[unit*k:][:k], scores, ranks, op.spec.Jitter)
		return
	}
	switch op.spec.Score {
	case meta.ScoreSoftmax:
		softmax(scores)
	case meta.ScoreSigmoid:
		sigmoid(scores)
	case meta.ScoreSqrtSoftplus:
		sqrtSoftplus(scores)
	}
	experts, weights := op.experts[unit*k:][:k], op.weights[unit*k:][:k]
	if op.spec.Table != "" {
		op.weighChosen(experts, weights, scores)
		return
	}
	copy(ranks, scores)
	if op.correction != nil {
		axpy(ranks[:len(op.correction)], op.correction, 1)
	}
	if op.spec.Groups > 0 {
		op.keepGroups(ranks, groups)
	}
	scored := k - op.spec.TopK // always chosen; they follow the others
	ranked := n - scored
	highest(experts[:op.spec.TopK], ranks[:ranked])
	for i := range scored {
		experts[op.spec.TopK+i] = int32(ranked + i)
	}
	op.weighChosen(experts, weights, scores)
}

// weighChosen sets the weights of experts. Those outside the scores have weight 0; the caller
// rejects them.
func (op *route) weighChosen(experts []int32, weights, scores []float32) {
	for i, e := range experts {
		if weights[i] = 0; e >= 0 && int(e) < len(scores) {
			weights[i] = scores[e]
		}
	}
	op.weigh(weights)
}

// sparseMixer chooses experts one after another. ranks holds the logits; those of chosen experts
// become −Inf. The comparison with the jitter is in float32, as in the reference.
func sparseMixer(experts []int32, weights, logits, ranks []float32, jitter float32) {
	for i := range experts {
		highest(experts[i:i+1], ranks)
		best := ranks[experts[i]]
		total := 0.0
		for j, v := range ranks {
			if closeTo(best, v, logits[j], jitter) {
				total += math.Exp(float64(v) - float64(best))
			}
		}
		weights[i] = float32(1 / total)
		ranks[experts[i]] = float32(math.Inf(-1))
	}
}

// closeTo reports whether an expert of rank v competes with the best one.
func closeTo(best, v, logit, jitter float32) bool {
	size := max(float32(math.Abs(float64(logit))), best)
	return !((best-v)/size > 2*jitter)
}

// weigh turns the chosen scores into weights.
func (op *route) weigh(weights []float32) {
	switch op.spec.Score {
	case meta.ScoreTopKSoftmax:
		softmax(weights)
	case meta.ScoreTopKSigmoid:
		sigmoid(weights)
	}
	if op.spec.Renormalise {
		total := sum(weights)
		if op.spec.Scored == nil && (op.spec.Score == meta.ScoreSigmoid || op.spec.Score == meta.ScoreSqrtSoftplus) {
			total += leastSum
		}
		for i, v := range weights {
			weights[i] = float32(float64(v) / total)
		}
	}
	if s := op.spec.Scale; s != 0 && s != 1 {
		for i := range weights {
			weights[i] *= s
		}
	}
}

func sigmoid(x []float32) {
	for i, v := range x {
		x[i] = float32(1 / (1 + math.Exp(-float64(v))))
	}
}

func sqrtSoftplus(x []float32) {
	for i, v := range x {
		v := float64(v)
		x[i] = float32(math.Sqrt(max(v, 0) + math.Log1p(math.Exp(-math.Abs(v)))))
	}
}

// keepGroups sets the ranks outside the best groups to −Inf.
func (op *route) keepGroups(ranks, groups []float32) {
	size := op.n / len(groups)
	for g := range groups {
		part := ranks[g*size:][:size]
		var two [2]int32
		if op.spec.GroupsByTwo && size > 1 {
			highest(two[:], part)
			groups[g] = part[two[0]] + part[two[1]]
		} else {
			highest(two[:1], part)
			groups[g] = part[two[0]]
		}
	}
	for g := range groups {
		if place(groups, g) >= op.spec.TopGroups {
			for i := range size {
				ranks[g*size+i] = float32(math.Inf(-1))
			}
		}
	}
}

// above reports whether rank a comes before b.
func above(a, b float32) bool { return a > b || a != a && b == b }

// highest fills top with the indices of the highest ranks, in descending order. There are at
// least as many ranks.
func highest(top []int32, ranks []float32) {
	n := 0
	for i, v := range ranks {
		if n == len(top) && !above(v, ranks[top[n-1]]) {
			continue
		}
		n = min(n+1, len(top))
		at := n - 1
		for ; at > 0 && above(v, ranks[top[at-1]]); at-- {
			top[at] = top[at-1]
		}
		top[at] = int32(i)
	}
}

// place returns the number of ranks that come before rank i.
func place(ranks []float32, i int) int {
	n := 0
	for j, v := range ranks {
		if above(v, ranks[i]) || j < i && !above(ranks[i], v) {
			n++
		}
	}
	return n
}

// softmax computes the softmax of x in float64, in ascending order.
func softmax(x []float32) {
	var kept [256]float64 // exponentials, which are the most expensive
	top := slices.Max(x)
	total := 0.0
	for i, v := range x {
		e := math.Exp(float64(v) - float64(top))
		if total += e; i < len(kept) {
			kept[i] = e
		}
	}
	for i, v := range x {
		if i < len(kept) {
			x[i] = float32(kept[i] / total)
		} else {
			x[i] = float32(math.Exp(float64(v)-float64(top)) / total)
		}
	}
}
