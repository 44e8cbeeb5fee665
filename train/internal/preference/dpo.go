package preference

import (
	"fmt"
)

// DPO is direct preference optimization. train.DPO documents the fields.
type DPO struct {
	Beta          float64
	Loss          string
	Smoothing     float64
	ReferenceFree bool
}

// Check returns an error for invalid settings.
func (o DPO) Check() error {
	limit := 0.5 // beyond it, the labels would mean the opposite
	switch o.Loss {
	case "sigmoid", "robust":
	case "hinge", "ipo":
		limit = 0
	default:
		return &SettingError{"LossType", o.Loss, "sigmoid, hinge, ipo or robust"}
	}
	if o.Beta == 0 || !finite(o.Beta, 0) {
		return &SettingError{"Beta", o.Beta, "more than 0"}
	}
	if o.Smoothing != 0 && !(o.Smoothing > 0 && o.Smoothing < limit) {
		if limit == 0 {
			return &SettingError{"LabelSmoothing", o.Smoothing, "0: the loss " + o.Loss + " has none, sigmoid and robust have it"}
		}
		return &SettingError{"LabelSmoothing", o.Smoothing, "0 or more and less than 0.5"}
	}
	return nil
}

// Compute returns the loss of a batch of pairs. The batch holds the chosen completions of all
// prompts, then the rejected ones.
func (o DPO) Compute(b *Batch) (*Result, error) {
	if err := b.check(2); err != nil {
		return nil, err
	}
	if (b.Reference == nil) != o.ReferenceFree {
		return nil, fmt.Errorf("preference: DPO: got a reference %t, want %t", b.Reference != nil, !o.ReferenceFree)
	}
	r := &Result{Slope: make([]float32, len(b.Policy)), Metrics: map[string]Sum{}}
	pairs := b.Rows / 2
	for i := range pairs {
		j := pairs + i
		chosen, rejected := b.score(b.Policy, i), b.score(b.Policy, j)
		ratio, other := chosen, rejected // log-probabilities relative to the reference
		if b.Reference != nil {
			ratio, other = ratio-b.score(b.Reference, i), other-b.score(b.Reference, j)
		}
		r.pair(o.Beta*ratio, o.Beta*other, chosen, rejected)
		scale, otherScale := 1.0, 1.0
		if o.Loss == "ipo" { // ipo compares means over tokens
			scale, otherScale = 1/float64(max(1, b.Lengths[i])), 1/float64(max(1, b.Lengths[j]))
		}
		loss, slope := o.margin(scale*ratio - otherScale*other)
		r.Loss += loss
		b.spread(r.Slope, i, slope*scale)
		b.spread(r.Slope, j, -slope*otherScale)
	}
	r.tokens(b, func(row int) bool { return row < pairs }, true)
	return r, nil
}

// margin returns the loss for a margin between chosen and rejected, and its derivative.
func (o DPO) margin(d float64) (loss, slope float64) {
	z, e := o.Beta*d, o.Smoothing
	switch o.Loss {
	case "hinge":
		if z < 1 {
			return 1 - z, -o.Beta
		}
		return 0, 0
	case "ipo":
		off := d - 1/(2*o.Beta)
		return off * off, 2 * off
	case "robust":
		loss = (-(1-e)*logSigmoid(z) + e*logSigmoid(-z)) / (1 - 2*e)
		return loss, o.Beta * (-(1-e)*sigmoid(-z) - e*sigmoid(z)) / (1 - 2*e)
	}
	loss = -(1-e)*logSigmoid(z) - e*logSigmoid(-z)
	return loss, o.Beta * (-(1-e)*sigmoid(-z) + e*sigmoid(z))
}
