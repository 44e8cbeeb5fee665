package preference

import (
	"fmt"
)

// KTO is Kahneman-Tversky optimization of completions that are judged individually. train.KTO
// documents the fields.
type KTO struct{ Beta, Desirable, Undesirable float64 }

// Check returns an error for invalid settings.
func (o KTO) Check() error {
	switch {
	case o.Beta == 0 || !finite(o.Beta, 0):
		return &SettingError{"Beta", o.Beta, "more than 0"}
	case !finite(o.Desirable, 0):
		return &SettingError{"DesirableWeight", o.Desirable, "0 or more"}
	case !finite(o.Undesirable, 0):
		return &SettingError{"UndesirableWeight", o.Undesirable, "0 or more"}
	}
	return nil
}

// KTOMetrics lists the names of the metrics of judged completions.
var KTOMetrics = append([]string{"rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "kl"}, tokenMetrics...)

// Compute returns the loss of a batch of completions.
func (o KTO) Compute(b *Batch) (*Result, error) {
	if err := b.check(1); err != nil {
		return nil, err
	}
	if b.Reference == nil || len(b.Desirable) != b.Rows {
		return nil, fmt.Errorf("preference: KTO: got a reference %t and %d judgements of %d rows", b.Reference != nil, len(b.Desirable), b.Rows)
	}
	r := &Result{Slope: make([]float32, len(b.Policy)), Metrics: map[string]Sum{}}
	kl := max(0, b.Divergence)
	for i, desirable := range b.Desirable {
		score := b.score(b.Policy, i)
		ratio := score - b.score(b.Reference, i)
		name, weight, sign := "rejected", o.Undesirable, -1.0
		if desirable {
			name, weight, sign = "chosen", o.Desirable, 1
		}
		s := sigmoid(sign * o.Beta * (ratio - kl))
		r.Loss += weight * (1 - s)
		b.spread(r.Slope, i, -weight*sign*o.Beta*s*(1-s))
		r.add("rewards/"+name, o.Beta*ratio)
		r.add("logps/"+name, score)
	}
	r.add("kl", kl)
	if x, y := r.Metrics["rewards/chosen"], r.Metrics["rewards/rejected"]; x.Count > 0 && y.Count > 0 {
		r.add("rewards/margins", x.Total/float64(x.Count)-y.Total/float64(y.Count))
	}
	r.tokens(b, func(row int) bool { return b.Desirable[row] }, false)
	return r, nil
}

// Divergence returns the mean log-ratio of policy and reference over the completions of mismatched
// prompts, which estimates their KL divergence.
func Divergence(b *Batch) float64 {
	sum := 0.0
	for i := range b.Rows {
		sum += b.score(b.Policy, i) - b.score(b.Reference, i)
	}
	return sum / float64(max(1, b.Rows))
}
