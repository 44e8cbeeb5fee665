package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/preference"
	"github.com/heftai/heft/train/tensor"
)

// Preference is an objective of preference tuning: [DPO], [ORPO] or [KTO].
type Preference interface {
	// Check returns an error for invalid settings.
	Check() error
	// Metrics returns the names of the values that Loss measures.
	Metrics() []string
	// NeedsReference reports whether Loss compares with a reference model.
	NeedsReference() bool
	objective() objective
}

// objective computes the loss of a batch.
type objective interface {
	Compute(*preference.Batch) (*preference.Result, error)
}

// DPO is direct preference optimization: the chosen completion of a prompt becomes more probable than
// the rejected one, measured against a reference model. Its losses are TRL's.
type DPO struct {
	// Beta limits how far the model moves from the reference: a higher one keeps it closer. It must
	// be positive.
	Beta float64
	// Type is sigmoid, hinge, ipo (which compares means over tokens) or robust. Empty means sigmoid.
	Type string
	// LabelSmoothing is the probability that a pair is labelled the wrong way round, from 0 to below
	// 0.5: sigmoid is then the conservative DPO, and robust the unbiased one. hinge and ipo have none.
	LabelSmoothing float64
	// ReferenceFree compares with a reference that gives all completions the same probability.
	ReferenceFree bool
}

func (o DPO) config() preference.DPO {
	if o.Type == "" {
		o.Type = "sigmoid"
	}
	return preference.DPO{Beta: o.Beta, Loss: o.Type, Smoothing: o.LabelSmoothing, ReferenceFree: o.ReferenceFree}
}

// Check returns an error for invalid settings.
func (o DPO) Check() error {
	if err := o.config().Check(); err != nil {
		return fmt.Errorf("train: DPO: %w", err)
	}
	return nil
}

// Metrics returns rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins,
// logps/chosen and logps/rejected, as TRL logs them. The other metrics of [TokenLosses] add
// entropy, logits/chosen, logits/rejected and mean_token_accuracy.
func (o DPO) Metrics() []string { return preference.DPOMetrics }

// NeedsReference returns true unless ReferenceFree is set.
func (o DPO) NeedsReference() bool { return !o.ReferenceFree }
func (o DPO) objective() objective { return o.config() }

// ORPO is odds ratio preference optimization, which needs no reference: the model learns the texts of
// chosen completions with their prompts, and the odds of chosen over rejected ones.
type ORPO struct {
	// Beta weights the log odds ratio. 0 learns the chosen texts only.
	Beta float64
}

// Check returns an error for invalid settings.
func (o ORPO) Check() error {
	if err := preference.ORPO(o).Check(); err != nil {
		return fmt.Errorf("train: ORPO: %w", err)
	}
	return nil
}

// Metrics returns those of [DPO] that need only losses, and nll_loss, log_odds_ratio and
// log_odds_chosen. Log-probabilities are means over tokens.
func (o ORPO) Metrics() []string {
	return append(slices.Clone(preference.PairMetrics), "nll_loss", "log_odds_ratio", "log_odds_chosen")
}

// NeedsReference returns false.
func (o ORPO) NeedsReference() bool { return false }
func (o ORPO) objective() objective { return preference.ORPO(o) }

// KTO is Kahneman-Tversky optimization of completions that are judged one by one. It needs batches of
// [data.PadJudged] with at least two rows.
type KTO struct {
	// Beta limits how far the model moves from the reference: a higher one keeps it closer. It must
	// be positive.
	Beta float64
	// DesirableWeight and UndesirableWeight weight the losses of the two kinds of completions. Choose
	// them so that the sums of both weights are about the same.
	DesirableWeight, UndesirableWeight float64
}

// Check returns an error for invalid settings.
func (o KTO) Check() error {
	if err := o.config().Check(); err != nil {
		return fmt.Errorf("train: KTO: %w", err)
	}
	return nil
}

func (o KTO) config() preference.KTO {
	return preference.KTO{Beta: o.Beta, Desirable: o.DesirableWeight, Undesirable: o.UndesirableWeight}
}

// Metrics returns rewards/chosen, rewards/rejected, rewards/margins, logps/chosen, logps/rejected
// and kl, as TRL logs them. The other metrics of [TokenLosses] add entropy, logits/chosen and
// logits/rejected.
func (o KTO) Metrics() []string { return preference.KTOMetrics }

// NeedsReference returns true.
func (o KTO) NeedsReference() bool { return true }
func (o KTO) objective() objective { return o.config() }

// PreferenceLabels returns the labels whose losses [PreferenceLoss] needs from the policy: those of
// the completions and, for [ORPO], of the prompts of chosen ones. The reference needs b.Labels.
func PreferenceLabels(p Preference, b data.ComparisonBatch) []int32 {
	if _, ok := p.(ORPO); !ok {
		return b.Labels
	}
	labels := slices.Clone(b.Labels)
	for i, in := range b.Mask[:b.Prompts*b.Columns] {
		if in != 0 {
			labels[i] = b.IDs[i]
		}
	}
	return labels
}

// TokenLosses are the losses of the tokens of a batch, [rows columns], from model.Model.Loss with
// [tensor.None]: of the trained model, and of the reference. Reference is nil if there is none.
type TokenLosses struct {
	Policy, Reference *tensor.Tensor
	// Entropies, MeanLogits and Top are those of model.Options for the model that is trained, or nil. They are measured only.
	Entropies, MeanLogits []float32
	Top                   []bool
}

// PreferenceLoss puts the loss of a batch of comparisons on a tape, summed over the prompts. Reference
// losses are not reversed. divergence is the policy's KL divergence for KTO ([KLDivergence]), else 0.
// Values that the objective measures go to meter, which may be nil.
func PreferenceLoss(tp *tensor.Tape, p Preference, b data.ComparisonBatch, losses TokenLosses, divergence float64, meter *Meter) (*tensor.Tensor, error) {
	if err := tp.Err(); err != nil {
		return nil, err
	}
	in := compared(b.TokenBatch, losses)
	in.Desirable, in.Divergence = b.Desirable, divergence
	in.Entropies, in.MeanLogits, in.Top = losses.Entropies, losses.MeanLogits, losses.Top
	r, err := p.objective().Compute(in)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return lossOf(tp, losses.Policy, r, meter)
}

// lossOf records a result on a tape, and adds its measurements to a meter.
func lossOf(tp *tensor.Tape, policy *tensor.Tensor, r *preference.Result, meter *Meter) (*tensor.Tensor, error) {
	if meter != nil {
		for name, sum := range r.Metrics {
			meter.Add(name, sum.Total, sum.Count)
		}
	}
	out := tp.Function(tensor.Function{Name: "preference loss", Data: []float32{float32(r.Loss)}, Inputs: []*tensor.Tensor{policy},
		Backward: func(grad []float32) error {
			to := tp.Gradient(policy)
			for i, slope := range r.Slope {
				to[i] += grad[0] * slope
			}
			return nil
		}})
	return out, tp.Err()
}

// KLDivergence estimates the policy's divergence from the reference by the losses of b.Mismatched.
// It may be negative. With several ranks use the mean over them.
func KLDivergence(b data.ComparisonBatch, losses TokenLosses) (float64, error) {
	if b.Mismatched == nil || losses.Reference == nil {
		return 0, errors.New("train: KL divergence: got no mismatched rows or no reference: use data.PadJudged")
	}
	return preference.Divergence(compared(*b.Mismatched, losses)), nil
}

// compared returns the values of tokens, each at the position before the token.
func compared(b data.TokenBatch, losses TokenLosses) *preference.Batch {
	in := &preference.Batch{Rows: b.Rows, Columns: b.Columns, Policy: losses.Policy.Data(), Answer: make([]bool, len(b.Labels)),
		Text: make([]bool, len(b.Labels)), Lengths: make([]int, b.Rows)}
	if losses.Reference != nil {
		in.Reference = losses.Reference.Data()
	}
	for i, label := range b.Labels {
		first := i%b.Columns == 0
		if !first && b.Mask[i] != 0 {
			in.Text[i-1] = true
		}
		if label == data.IgnoreLabel {
			continue
		}
		in.Lengths[i/b.Columns]++
		if !first {
			in.Answer[i-1] = true
		}
	}
	return in
}
