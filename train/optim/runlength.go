package optim

import (
	"errors"
	"fmt"
	"math"
)

// ErrRealBatch reports that real_batch_size is not a multiple of the batch size of all ranks.
var ErrRealBatch = errors.New("optim: real_batch_size must be divisible by the batch size of all ranks together")

// Strategy is the unit of a training run's length.
type Strategy string

const (
	ByEpochs Strategy = "epochs"
	BySteps  Strategy = "steps"
)

// RunLength describes a training run for [Count].
type RunLength struct {
	Samples   int
	BatchSize int // on one device
	World     int // number of ranks; 0 means 1
	// Accumulation is the number of micro steps per optimizer step. 0 means 1. It is ignored if
	// RealBatch is set.
	Accumulation int
	// RealBatch is the number of samples per optimizer step over all ranks. 0 means that it
	// follows from the other fields.
	RealBatch int
	Strategy  Strategy
	Epochs    float64
	Steps     int // micro steps of each rank
}

// StepCounts is the result of [Count].
type StepCounts struct {
	// Steps is the run's length in the unit of its strategy: per-device batches of the whole data
	// over all epochs, or the steps of one rank.
	Steps int
	// ScheduleSteps is the length to create the schedule with: the number of per-device batches
	// that all ranks process together. A PreparedScheduler steps once per rank.
	ScheduleSteps int
	Accumulation  int
	RealBatch     int
}

// Count computes the steps of r.
func Count(r RunLength) (StepCounts, error) {
	if r.World == 0 {
		r.World = 1
	}
	if r.Accumulation == 0 {
		r.Accumulation = 1
	}
	if r.BatchSize < 1 || r.World < 1 || r.Accumulation < 1 || r.RealBatch < 0 {
		return StepCounts{}, fmt.Errorf("optim: count: invalid batch size %d, world %d, accumulation %d or real batch %d", r.BatchSize, r.World, r.Accumulation, r.RealBatch)
	}
	together := r.BatchSize * r.World
	c := StepCounts{RealBatch: r.RealBatch}
	if c.RealBatch == 0 {
		c.RealBatch = together * r.Accumulation
	}
	if c.RealBatch%together != 0 {
		return StepCounts{}, fmt.Errorf("%w: %d by %d", ErrRealBatch, c.RealBatch, together)
	}
	c.Accumulation = c.RealBatch / together
	switch r.Strategy {
	case ByEpochs:
		c.Steps = int(math.Ceil(float64(r.Samples) * r.Epochs / float64(r.BatchSize)))
		c.ScheduleSteps = c.Steps
	case BySteps:
		c.Steps = r.Steps
		c.ScheduleSteps = c.Steps * r.World
	default:
		return StepCounts{}, fmt.Errorf("optim: training strategy %q is neither epochs nor steps", r.Strategy)
	}
	return c, nil
}

// TrainerSteps returns the number of optimizer steps that Hugging Face's Trainer takes over a
// loader of the given number of batches. An accumulation window that the loader's end cuts short
// counts as one step. A positive limit (max_steps) replaces epochs.
func TrainerSteps(batches, accumulation int, epochs float64, limit int) int {
	if limit > 0 {
		return limit
	}
	accumulation = max(1, accumulation)
	each := max(1, (batches+accumulation-1)/accumulation)
	return int(math.Ceil(epochs * float64(each)))
}
