package tensor

import (
	"slices"
)

// Route chooses k experts for each row of router logits [rows, experts] by the softmax over all
// experts. It returns the weights [rows, k], highest first, and the experts' indices in the same
// order. With renormalize the weights of a row sum to 1. Of equal logits the lower index comes
// first. The choice itself has no gradient.
func (tp *Tape) Route(logits *Tensor, k int, renormalize bool) (weights *Tensor, experts []int) {
	if !tp.ready("route", logits) {
		return tp.void(), nil
	}
	if logits.dims() != 2 || k < 1 || k > logits.last() {
		return tp.fail("route: logits have shape %v, want [rows experts] with at least %d experts", logits, k), nil
	}
	rows, n := logits.shape[0], logits.shape[1]
	experts = chooseExperts(logits, k)
	flat := make([]int, len(experts))
	for i, e := range experts {
		flat[i] = i/k*n + e
	}
	pick := func(x *Tensor) *Tensor {
		return tp.Reshape(tp.Gather(tp.Reshape(x, rows*n), flat), rows, k)
	}
	if renormalize { // the softmax over the chosen ones is the same
		return tp.Softmax(pick(logits), -1), experts
	}
	return pick(tp.Softmax(logits, -1)), experts
}

func chooseExperts(logits *Tensor, k int) []int {
	rows, n := logits.shape[0], logits.shape[1]
	experts := make([]int, 0, rows*k)
	order := make([]int, n)
	for r := range rows {
		row := logits.data[r*n : (r+1)*n]
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return 0
		})
		experts = append(experts, order[:k]...)
	}
	return experts
}

// Experts runs the experts of an MoE layer on the rows of x [rows, width] and sums their results by
// weight. weights and experts come from Route. run computes one expert's layers, from [n, width] to
// [n, out]. n may be 0, so that every expert is on the tape.
func (tp *Tape) Experts(x, weights *Tensor, experts []int, count int, run func(expert int, x *Tensor) *Tensor) *Tensor {
	if !tp.ready("experts", x, weights) {
		return tp.void()
	}
	if x.dims() != 2 || weights.dims() != 2 || weights.shape[0] != x.shape[0] || len(experts) != len(weights.data) || !within(experts, count) {
		return tp.fail("experts: x has shape %v, weights %v: got %d choices of %d experts, want one per weight", x, weights, len(experts), count)
	}
	k, flat := weights.shape[1], tp.Reshape(weights, len(experts), 1)
	rows, places := make([][]int, count), make([][]int, count)
	for i, e := range experts {
		rows[e], places[e] = append(rows[e], i/k), append(places[e], i)
	}
	var sum *Tensor
	for e := range count {
		y := tp.Mul(run(e, tp.Gather(x, rows[e])), tp.Gather(flat, places[e]))
		part := tp.Scatter(y, rows[e], x.shape[0])
		if sum == nil {
			sum = part
		} else {
			sum = tp.Add(sum, part)
		}
	}
	if sum == nil {
		return tp.fail("experts: got no experts for x of shape %v", x)
	}
	return sum
}

// RouterLoss computes Mixtral's auxiliary loss, which balances experts. It is the number of experts
// times the sum over experts of (choices of the expert / rows) times its mean probability. logits
// [rows, experts] are those of all layers, concatenated. A balanced router has loss k. The choices
// have no gradient.
func (tp *Tape) RouterLoss(logits *Tensor, k int) *Tensor {
	if !tp.ready("router_loss", logits) {
		return tp.void()
	}
	if logits.dims() != 2 || k < 1 || k > logits.last() {
		return tp.fail("router_loss: logits have shape %v, want [rows experts] with at least %d experts", logits, k)
	}
	rows, n := logits.shape[0], logits.shape[1]
	share := make([]float32, n)
	for _, e := range chooseExperts(logits, k) {
		share[e]++
	}
	for e := range share {
		share[e] *= float32(n) / float32(rows)
	}
	mean := tp.MeanDim(tp.Softmax(logits, -1), 0)
	return tp.Sum(tp.Mul(mean, tp.Input(share)))
}
