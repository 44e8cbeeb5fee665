package train

import (
	"fmt"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/preference"
	"github.com/heftai/heft/train/tensor"
)

// Preference is an objective of preference tuning, such as [DPO].
type Preference interface {
	// Check reports invalid settings.
	Check() error
	// Metrics are the names of the values that Loss measures.
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

func (o DPO) Check() error {
	if err := o.config().Check(); err != nil {
		return fmt.Errorf("train: DPO: %w", err)
	}
	return nil
}

// Metrics are rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen and
// logps/rejected, as TRL logs them.
func (o DPO) Metrics() []string    { return preference.PairMetrics }
func (o DPO) NeedsReference() bool { return !o.ReferenceFree }
func (o DPO) objective() objective { return o.config() }

// PreferenceLoss puts the loss of a batch of comparisons on a tape, summed over the prompts. policy and
// reference have the losses of the batch's tokens, [rows columns], from model.Model.Loss with
// [tensor.None]: that of the model that is trained, and that of the reference or nil. The reference
// is not reversed. Values that the objective measures go to meter, which may be nil.
func PreferenceLoss(tp *tensor.Tape, p Preference, b data.ComparisonBatch, policy, reference *tensor.Tensor, meter *Meter) (*tensor.Tensor, error) {
	if err := tp.Err(); err != nil {
		return nil, err
	}
	in := &preference.Batch{Rows: b.Rows, Columns: b.Columns, Policy: policy.Data(), Answer: make([]bool, len(b.Labels)), Lengths: make([]int, b.Rows)}
	if reference != nil {
		in.Reference = reference.Data()
	}
	for i, label := range b.Labels {
		if label == data.IgnoreLabel {
			continue
		}
		in.Lengths[i/b.Columns]++
		if i%b.Columns > 0 {
			in.Answer[i-1] = true
		}
	}
	r, err := p.objective().Compute(in)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
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
