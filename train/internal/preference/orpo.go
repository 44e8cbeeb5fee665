package preference

import (
	"math"
)

// ORPO is odds ratio preference optimization: the loss of the chosen texts, plus beta times the
// log odds ratio of chosen over rejected completions.
type ORPO struct{ Beta float64 }

// Check returns an error for invalid settings.
func (o ORPO) Check() error {
	if !finite(o.Beta, 0) {
		return &SettingError{"Beta", o.Beta, "0 or more"}
	}
	return nil
}

// Compute returns the loss of a batch of pairs. The batch holds the chosen completions of all
// prompts, then the rejected ones. Policy also has the tokens of the prompts of chosen
// completions.
func (o ORPO) Compute(b *Batch) (*Result, error) {
	if err := b.check(2); err != nil {
		return nil, err
	}
	r := &Result{Slope: make([]float32, len(b.Policy)), Metrics: map[string]Sum{}}
	pairs := b.Rows / 2
	o.learn(b, pairs, r)
	for i := range pairs {
		j := pairs + i
		n, m := float64(max(1, b.Lengths[i])), float64(max(1, b.Lengths[j]))
		chosen, rejected := b.score(b.Policy, i)/n, b.score(b.Policy, j)/m
		odds := chosen - rejected - (log1mExp(chosen) - log1mExp(rejected))
		ratio := logSigmoid(odds)
		r.Loss -= o.Beta * ratio
		slope := -o.Beta * sigmoid(-odds) // the derivative of log1mExp(x) is -1/(exp(-x)-1)
		b.spread(r.Slope, i, slope*(1+1/math.Expm1(-chosen))/n)
		b.spread(r.Slope, j, -slope*(1+1/math.Expm1(-rejected))/m)
		r.pair(o.Beta*chosen, o.Beta*rejected, chosen, rejected)
		r.add("log_odds_ratio", ratio)
		r.add("log_odds_chosen", odds)
	}
	return r, nil
}

// learn adds the mean loss over all tokens of the chosen texts, once for each pair.
func (o ORPO) learn(b *Batch, pairs int, r *Result) {
	sum, n := 0.0, 0
	for i, in := range b.Text[:pairs*b.Columns] {
		if in {
			sum, n = sum+float64(b.Policy[i]), n+1
		}
	}
	if n == 0 {
		return
	}
	weight := float64(pairs) / float64(n)
	for i, in := range b.Text[:pairs*b.Columns] {
		if in {
			r.Slope[i] = float32(weight)
		}
	}
	r.Loss = weight * sum
	r.Metrics["nll_loss"] = Sum{r.Loss, pairs}
}

// log1mExp returns log(1-exp(x)) for negative x.
func log1mExp(x float64) float64 {
	if x > -math.Ln2 {
		return math.Log(-math.Expm1(x))
	}
	return math.Log1p(-math.Exp(x))
}
