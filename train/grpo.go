package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/preference"
	"github.com/heftai/heft/train/tensor"
)

// GRPO is group relative policy optimization: the model generates several completions of a prompt, and
// those with a higher reward than the others become more probable. Its losses are those of TRL's
// GRPOTrainer.
type GRPO struct {
	// Beta weights the divergence from a reference model. 0 needs no reference.
	Beta float64
	// Epsilon limits the change of a token's probability relative to the policy that generated it:
	// to factors from 1-Epsilon to 1+EpsilonHigh. If EpsilonHigh is 0, it is Epsilon.
	Epsilon, EpsilonHigh float64
	// LossType determines how tokens are averaged: grpo (over each completion, then over
	// completions), bnpo (over the tokens of a batch), dr_grpo (MaxCompletion tokens for each
	// completion) or dapo (over the tokens of a step). Empty means dapo.
	LossType string
	// MaxCompletion is the limit of tokens of a completion, which dr_grpo divides by.
	MaxCompletion int
	// ScaleRewards divides advantages by the standard deviation of the rewards of a group, or of a batch,
	// or by nothing: group, batch or none. Empty means group.
	ScaleRewards string
}

func (o GRPO) config() preference.GRPO {
	return preference.GRPO{Beta: o.Beta, Epsilon: o.Epsilon, EpsilonHigh: cmp.Or(o.EpsilonHigh, o.Epsilon), Loss: cmp.Or(o.LossType, "dapo"),
		MaxCompletion: o.MaxCompletion, Scale: cmp.Or(o.ScaleRewards, "group")}
}

// Check returns an error for invalid settings.
func (o GRPO) Check() error {
	if err := o.config().Check(); err != nil {
		return fmt.Errorf("train: GRPO: %w", err)
	}
	return nil
}

// Metrics returns the names of the values that [GRPOLoss] measures: kl if there is a reference, the
// entropy of the distributions that tokens are drawn from if the losses have it, and the fractions
// of tokens whose probability moved beyond a limit: clip_ratio/low_mean, high_mean and region_mean.
func (o GRPO) Metrics() []string { return slices.Clone(preference.GRPOMetrics) }

// Advantages returns the advantage of each completion from the rewards of groups of completions of
// one prompt. all are the rewards of the groups of all ranks, which ScaleRewards "batch" needs. A
// reward of NaN does not count, and its completion has the advantage 0.
func (o GRPO) Advantages(groups [][]float64, all []float64) [][]float64 {
	return o.config().Advantages(groups, all)
}

// Items returns the number of items that the loss of a batch is summed over, for
// TrainerConfig.Items: tokens of completions for dapo, and otherwise completions.
func (o GRPO) Items(b data.TokenBatch) int {
	tokens := 0
	for _, l := range b.Labels {
		if l != data.IgnoreLabel {
			tokens++
		}
	}
	return o.config().Items(b.Rows, tokens)
}

// GRPOLosses are the losses of the tokens of a batch, [rows columns], from model.Model.Loss with
// [tensor.None]: under the trained model, under the one that generated the completions, and under
// the reference. Old is nil if Policy has the weights that generated the completions. Reference is
// nil without a Beta.
type GRPOLosses struct {
	Policy    *tensor.Tensor
	Old       []float32
	Reference *tensor.Tensor
	// Entropies are those of model.Options.Entropies, or nil.
	Entropies []float32
}

// GRPOLoss records the loss of a batch of completions on a tape, summed over o.Items(b). The labels
// of b must be those of completions. advantages has one entry per row. Values that the loss
// measures are added to meter, which may be nil.
func GRPOLoss(tp *tensor.Tape, o GRPO, b data.TokenBatch, advantages []float64, losses GRPOLosses, meter *Meter) (*tensor.Tensor, error) {
	if err := tp.Err(); err != nil {
		return nil, err
	}
	in := compared(b, TokenLosses{Policy: losses.Policy, Reference: losses.Reference})
	in.Advantages, in.Old, in.Entropies = advantages, losses.Old, losses.Entropies
	r, err := o.config().Compute(in)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return lossOf(tp, losses.Policy, r, meter)
}

// RewardMoments returns the mean and the standard deviation of rewards without NaN, as advantages
// use them.
func RewardMoments(rewards []float64) (mean, deviation float64) { return preference.Moments(rewards) }
