package backendtest

import (
	"math"
	"sort"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// refRoute routes one row by sorting all experts.
func refRoute(logits, correction []float32, a *meta.MoESpec) ([]int32, []float64) {
	if a.Score == meta.ScoreSparseMixer {
		return refSparseMixer(logits, a)
	}
	n := len(logits)
	ranked, k := n+a.TopK-a.Chosen(), a.Chosen()
	scores, ranks := make([]float64, n), make([]float64, n)
	total := 0.0
	for i, v := range logits {
		switch a.Score {
		case meta.ScoreSigmoid:
			scores[i] = 1 / (1 + math.Exp(-float64(v)))
		case meta.ScoreTopKSoftmax, meta.ScoreTopKSigmoid:
			scores[i] = float64(v)
		default:
			scores[i] = math.Exp(float64(v))
			total += scores[i]
		}
	}
	for i := range scores {
		if a.Score == meta.ScoreSoftmax {
			scores[i] /= total
		}
		ranks[i] = scores[i]
		if correction != nil && i < ranked {
			ranks[i] += float64(correction[i])
		}
	}
	if a.Groups > 0 {
		refGroups(ranks, a)
	}
	order := descending(ranks[:ranked])[:a.TopK]
	for i := ranked; i < n; i++ {
		order = append(order, i)
	}
	weights := make([]float64, k)
	experts := make([]int32, k)
	total = 0
	for i, expert := range order {
		experts[i], weights[i] = int32(expert), scores[expert]
		if a.Score == meta.ScoreTopKSoftmax {
			weights[i] = math.Exp(weights[i])
		}
		if a.Score == meta.ScoreTopKSigmoid {
			weights[i] = 1 / (1 + math.Exp(-weights[i]))
		}
		total += weights[i]
	}
	for i := range weights {
		if a.Renormalise || a.Score == meta.ScoreTopKSoftmax {
			weights[i] /= total
		}
		if a.Scale != 0 {
			weights[i] *= float64(a.Scale)
		}
	}
	return experts, weights
}

// refSparseMixer sorts the logits. It weighs each choice by a softmax over the choice and the close
// logits after it.
func refSparseMixer(logits []float32, a *meta.MoESpec) ([]int32, []float64) {
	values := make([]float64, len(logits))
	for i, v := range logits {
		values[i] = float64(v)
	}
	order := descending(values)
	experts, weights := make([]int32, a.TopK), make([]float64, a.TopK)
	for i := range experts {
		best, total := values[order[i]], 0.0
		for _, j := range order[i:] {
			if best-values[j] <= 2*float64(a.Jitter)*max(math.Abs(values[j]), best) {
				total += math.Exp(values[j] - best)
			}
		}
		experts[i], weights[i] = int32(order[i]), 1/total
	}
	return experts, weights
}

// descending returns the indices in order of falling value, and of rising index for equal values.
func descending(v []float64) []int {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return v[order[i]] > v[order[j]] })
	return order
}

func refGroups(ranks []float64, a *meta.MoESpec) {
	size := len(ranks) / a.Groups
	groups := make([]float64, a.Groups)
	for g := range groups {
		part := ranks[g*size : (g+1)*size]
		order := descending(part)
		groups[g] = part[order[0]]
		if a.GroupsByTwo {
			groups[g] += part[order[1]]
		}
	}
	for _, g := range descending(groups)[a.TopGroups:] {
		for i := range size {
			ranks[g*size+i] = math.Inf(-1)
		}
	}
}

func testRoute(e *env) {
	for i, a := range []meta.MoESpec{
		{TopK: 1, Score: meta.ScoreSoftmax},
		{TopK: 2, Score: meta.ScoreSoftmax, Renormalise: true},
		{TopK: 4, Score: meta.ScoreTopKSoftmax},
		{TopK: 3, Score: meta.ScoreSoftmax, Groups: 4, TopGroups: 2, Scale: 16},
		{TopK: 3, Score: meta.ScoreSoftmax, Groups: 4, TopGroups: 2, GroupsByTwo: true},
		{TopK: 6, Score: meta.ScoreSigmoid, Groups: 4, TopGroups: 2, Renormalise: true, Scale: 2.5},
		{TopK: 6, Score: meta.ScoreSigmoid, Groups: 4, TopGroups: 2, GroupsByTwo: true, Renormalise: true, Scale: 2.5},
		{TopK: 1, Score: meta.ScoreSigmoid},
		{TopK: 2, Score: meta.ScoreTopKSigmoid},
		{TopK: 2, Score: meta.ScoreSigmoid, Renormalise: true, Scale: 8, Scored: &meta.ScoredSpec{Count: 3}},
		{TopK: 2, Score: meta.ScoreSparseMixer, Jitter: 0.01},
		{TopK: 2, Score: meta.ScoreSparseMixer, Jitter: 0.4},
	} {
		for _, n := range []int{8, 16, 64} {
			for _, corrected := range []bool{false, true} {
				if a.Groups > 0 && n/a.Groups*a.TopGroups < a.TopK {
					continue
				}
				const rows = 23
				logits := e.values(rows * n)
				var correction []float32
				var c tensor.Tensor
				if corrected {
					correction = e.values(n + a.TopK - a.Chosen())
					c = e.floats(correction, len(correction))
				}
				k := a.Chosen()
				experts, weights := make([]int32, rows*k), make([]float32, rows*k)
				e.Route(experts, weights, e.strided(logits, rows, n, 2), c, &a)
				e.sync()
				for r := range rows {
					chosen, want := refRoute(logits[r*n:(r+1)*n], correction, &a)
					for j, expert := range chosen {
						if got := experts[r*k+j]; got != expert {
							e.Fatalf("route %d of %d experts, row %d: choice %d is expert %d, want %d", i, n, r, j, got, expert)
						}
					}
					close64(e, name("route", i, n, "row", r), weights[r*k:(r+1)*k], want, 1e-6, 1e-3)
				}
			}
		}
	}
}

// testRouteTies: of experts or groups with equal scores, the lower number comes first.
func testRouteTies(e *env) {
	logits := e.floats(make([]float32, 8), 1, 8)
	experts, weights := make([]int32, 3), make([]float32, 3)
	for _, a := range []meta.MoESpec{{TopK: 3}, {TopK: 3, Score: meta.ScoreSigmoid, Groups: 4, TopGroups: 2, GroupsByTwo: true}} {
		e.Route(experts, weights, logits, tensor.Tensor{}, &a)
		e.sync()
		for i, expert := range experts {
			if int(expert) != i {
				e.Errorf("route of equal logits chose %v", experts)
			}
		}
	}
	nan := float32(math.NaN())
	e.Route(experts, weights, e.floats([]float32{nan, nan, nan, nan, nan, nan, nan, nan}, 1, 8), tensor.Tensor{}, &meta.MoESpec{TopK: 3})
	e.sync()
	if experts[0] == experts[1] || experts[1] == experts[2] || experts[0] == experts[2] {
		e.Errorf("route of NaN chose %v", experts)
	}
}
