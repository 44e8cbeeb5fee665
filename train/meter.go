package train

import "github.com/heftai/heft/train/internal/trainer"

// Meter collects values that ComputeLoss and EvaluateBatch measure in addition to the loss. A
// [Trainer] of [Updates] logs their means over all samples of all ranks since its last log. After
// an evaluation it logs the evaluation's means, with the prefix "eval_", as metrics of the
// evaluation. A Meter must be used only by one rank's goroutine.
type Meter struct{ m *trainer.Meter }

// NewMeter makes a meter of values with these names. The names must be the same on all ranks.
func NewMeter(names ...string) *Meter { return &Meter{trainer.NewMeter(names...)} }

// NewBatchMeter makes a meter whose values are means over a batch of all ranks. A [Trainer] logs
// the mean of the batches' means since its last log, as TRL's SFTTrainer does. Call Add once per
// batch and name. Such a meter measures only training: evaluations have [Evaluation].Sums.
func NewBatchMeter(names ...string) *Meter { return &Meter{trainer.NewBatchMeter(names...)} }

// Add adds the sum of a value over n samples. It ignores names that were not given to the
// constructor.
func (m *Meter) Add(name string, sum float64, n int) { m.m.Add(name, sum, n) }
