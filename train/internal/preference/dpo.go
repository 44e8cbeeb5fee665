package preference

import (
	"fmt"
	"math"
)

// DPO is direct preference optimization. train.DPO documents the fields.
type DPO struct {
	Beta          float64
	Loss          string
	Smoothing     float64
	ReferenceFree bool
}

// Check reports invalid settings.
func (o DPO) Check() error {
	limit := 0.5 // beyond, the labels would say the opposite
	switch o.Loss {
	case "sigmoid", "robust":
	case "hinge", "ipo":
		limit = 0
	default:
		return fmt.Errorf("got the DPO loss %q, want sigmoid, hinge, ipo or robust", o.Loss)
	}
	if !(o.Beta > 0) || math.IsInf(o.Beta, 0) {
		return fmt.Errorf("got beta %v, want more than 0", o.Beta)
	}
	if o.Smoothing != 0 && !(o.Smoothing > 0 && o.Smoothing < limit) {
		if limit == 0 {
			return fmt.Errorf("got label smoothing %v, but the DPO loss %s has none: use sigmoid or robust", o.Smoothing, o.Loss)
		}
		return fmt.Errorf("got label smoothing %v, want 0 or more and less than 0.5", o.Smoothing)
	}
	return nil
}

// Compute returns the loss of a batch of pairs: the chosen completions of all prompts, then the
// rejected ones.
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
		ratio, other := chosen, rejected // log-probabilities against the reference
		if b.Reference != nil {
			ratio, other = ratio-b.score(b.Reference, i), other-b.score(b.Reference, j)
		}
		r.pair(o.Beta*ratio, o.Beta*other, chosen, rejected)
		scale, otherScale := 1.0, 1.0
		if o.Loss == "ipo" { // which compares means over tokens
			scale, otherScale = 1/float64(max(1, b.Lengths[i])), 1/float64(max(1, b.Lengths[j]))
		}
		loss, slope := o.margin(scale*ratio - otherScale*other)
		r.Loss += loss
		b.spread(r.Slope, i, slope*scale)
		b.spread(r.Slope, j, -slope*otherScale)
	}
	return r, nil
}

// margin returns the loss of a margin between chosen and rejected, and its derivative.
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
