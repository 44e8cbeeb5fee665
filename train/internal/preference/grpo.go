package preference

import (
	"fmt"
	"math"
	"slices"
)

// GRPO is group relative policy optimization of completions with advantages. train.GRPO documents
// the fields.
type GRPO struct {
	Beta, Epsilon, EpsilonHigh float64
	Loss                       string
	MaxCompletion              int
	Scale                      string
}

// Check returns an error for invalid settings.
func (o GRPO) Check() error {
	switch {
	case !slices.Contains([]string{"grpo", "bnpo", "dr_grpo", "dapo"}, o.Loss):
		return &SettingError{"LossType", o.Loss, "dapo, grpo, bnpo or dr_grpo"}
	case !slices.Contains([]string{"group", "batch", "none"}, o.Scale):
		return &SettingError{"ScaleRewards", o.Scale, "group, batch or none"}
	case !finite(o.Beta, 0):
		return &SettingError{"Beta", o.Beta, "0 or more"}
	case !(o.Epsilon >= 0):
		return &SettingError{"Epsilon", o.Epsilon, "0 or more"}
	case !(o.EpsilonHigh >= 0):
		return &SettingError{"EpsilonHigh", o.EpsilonHigh, "0 or more"}
	case o.Loss == "dr_grpo" && o.MaxCompletion < 1:
		return &SettingError{"MaxCompletion", o.MaxCompletion, "1 or more"}
	}
	return nil
}

// GRPOMetrics lists the names of the metrics that Compute measures.
var GRPOMetrics = []string{"kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"}

// Items returns the number of items that the losses of a batch are summed over, for the given
// numbers of rows and of completion tokens.
func (o GRPO) Items(rows, tokens int) int {
	if o.Loss == "dapo" {
		return tokens
	}
	return rows
}

// Advantages returns the advantages for the rewards of groups, one list per group. all holds the
// rewards of the groups of all ranks. A reward of NaN is left out of its group and has the
// advantage 0.
func (o GRPO) Advantages(groups [][]float64, all []float64) [][]float64 {
	const apart = 1e-4 // TRL's guard against groups with equal rewards
	_, whole := moments(all)
	out := make([][]float64, len(groups))
	for i, rewards := range groups {
		mean, deviation := moments(rewards)
		out[i] = make([]float64, len(rewards))
		for k, r := range rewards {
			a := r - mean
			switch o.Scale {
			case "group":
				a /= deviation + apart
			case "batch":
				a /= whole + apart
			}
			if !math.IsNaN(a) {
				out[i][k] = a
			}
		}
	}
	return out
}

// moments returns the mean and the standard deviation of a sample, ignoring NaNs.
func moments(x []float64) (mean, deviation float64) {
	n, sum := 0.0, 0.0
	for _, v := range x {
		if !math.IsNaN(v) {
			n, sum = n+1, sum+v
		}
	}
	if mean = sum / n; n < 2 {
		return mean, 0
	}
	squares := 0.0
	for _, v := range x {
		if !math.IsNaN(v) {
			squares += (v - mean) * (v - mean)
		}
	}
	return mean, math.Sqrt(squares / (n - 1))
}

// Moments returns the mean and the standard deviation of rewards, ignoring NaNs.
func Moments(rewards []float64) (mean, deviation float64) { return moments(rewards) }

// Compute returns the loss of a batch of completions with their advantages, summed over Items.
func (o GRPO) Compute(b *Batch) (*Result, error) {
	if err := b.check(1); err != nil {
		return nil, err
	}
	switch {
	case b.Entropies != nil && len(b.Entropies) != len(b.Policy):
		return nil, fmt.Errorf("preference: GRPO: got %d entropies for %d tokens", len(b.Entropies), len(b.Policy))
	case len(b.Advantages) != b.Rows || b.Old != nil && len(b.Old) != len(b.Policy):
		return nil, fmt.Errorf("preference: GRPO: got %d advantages and %d old values for %d rows of %d tokens", len(b.Advantages), len(b.Old), b.Rows, b.Columns)
	case o.Beta != 0 && b.Reference == nil:
		return nil, fmt.Errorf("preference: GRPO: got no reference, want one for beta %v", o.Beta)
	}
	r := &Result{Slope: make([]float32, len(b.Policy)), Metrics: map[string]Sum{}}
	tokens := 0
	for _, in := range b.Answer {
		if in {
			tokens++
		}
	}
	for row := range b.Rows {
		weight := o.weight(b.Rows, tokens, b.Lengths[row])
		for i := row * b.Columns; i < (row+1)*b.Columns; i++ {
			if b.Answer[i] {
				loss, slope := o.token(b, i, b.Advantages[row], r)
				r.Loss += weight * loss
				r.Slope[i] = float32(-weight * slope) // the elements are negative log-probabilities
			}
		}
	}
	return r, nil
}

// weight returns the weight of a token in the sum over Items.
func (o GRPO) weight(rows, tokens, length int) float64 {
	switch o.Loss {
	case "grpo":
		return 1 / float64(max(1, length))
	case "bnpo":
		return float64(rows) / float64(max(1, tokens))
	case "dr_grpo":
		return 1 / float64(o.MaxCompletion)
	}
	return 1
}

// token returns the loss of a token and its derivative by the token's log-probability.
func (o GRPO) token(b *Batch, i int, advantage float64, r *Result) (loss, slope float64) {
	p, old := -float64(b.Policy[i]), -float64(b.Policy[i])
	if b.Old != nil {
		old = -float64(b.Old[i])
	}
	ratio := math.Exp(p - old)
	clipped := min(max(ratio, 1-o.Epsilon), 1+o.EpsilonHigh)
	loss, slope = -ratio*advantage, -ratio*advantage
	if clipped*advantage < ratio*advantage { // the lower of both, which does not depend on the policy
		loss, slope = -clipped*advantage, 0
	}
	low, high := 0.0, 0.0
	if ratio < 1-o.Epsilon && advantage < 0 {
		low = 1
	}
	if ratio > 1+o.EpsilonHigh && advantage > 0 {
		high = 1
	}
	if b.Entropies != nil {
		r.add("entropy", float64(b.Entropies[i]))
	}
	r.add("clip_ratio/low_mean", low)
	r.add("clip_ratio/high_mean", high)
	r.add("clip_ratio/region_mean", low+high)
	if o.Beta != 0 {
		d := -float64(b.Reference[i]) - p
		kl := math.Exp(d) - d - 1
		r.add("kl", ratio*kl) // weighted as the policy samples, not the one that did
		loss, slope = loss+o.Beta*ratio*kl, slope+o.Beta*ratio*(kl+1-math.Exp(d))
	}
	return loss, slope
}
