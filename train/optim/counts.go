package optim

import (
	"errors"
	"fmt"
	"math"
)

// ErrRealBatch says that the batch of an optimizer step is not made of whole batches.
var ErrRealBatch = errors.New("optim: real_batch_size must be divisible by the batch size of all ranks together")

// Strategy says what a training run's length is given in.
type Strategy string

const (
	ByEpochs Strategy = "epochs"
	BySteps  Strategy = "steps"
)

// Run is a training run whose schedule is to be counted.
type Run struct {
	Samples   int
	BatchSize int // on one device
	World     int // ranks; 0 is 1
	// Accumulation is the number of micro steps of an optimizer step; 0 is 1. It is not
	// looked at where RealBatch is given.
	Accumulation int
	// RealBatch is the number of samples of an optimizer step over all ranks; 0 follows
	// from the others.
	RealBatch int
	Strategy  Strategy
	Epochs    float64
	Steps     int // micro steps of each rank
}

// Counts are what follows from a Run.
type Counts struct {
	// Steps is the run's length as its strategy counts it: per-device batches of the
	// whole data over all epochs, or the steps of one rank.
	Steps int
	// ScheduleSteps is what the schedule is to be made with: the number of per-device
	// batches that all ranks process together, since a PreparedScheduler moves by the
	// number of ranks.
	ScheduleSteps int
	Accumulation  int
	RealBatch     int
}

// Count counts r.
func Count(r Run) (Counts, error) {
	if r.World == 0 {
		r.World = 1
	}
	if r.Accumulation == 0 {
		r.Accumulation = 1
	}
	if r.BatchSize < 1 || r.World < 1 || r.Accumulation < 1 || r.RealBatch < 0 {
		return Counts{}, fmt.Errorf("optim: batches of %d on %d ranks, accumulating %d, %d together", r.BatchSize, r.World, r.Accumulation, r.RealBatch)
	}
	together := r.BatchSize * r.World
	c := Counts{RealBatch: r.RealBatch}
	if c.RealBatch == 0 {
		c.RealBatch = together * r.Accumulation
	}
	if c.RealBatch%together != 0 {
		return Counts{}, fmt.Errorf("%w: %d by %d", ErrRealBatch, c.RealBatch, together)
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
		return Counts{}, fmt.Errorf("optim: training strategy %q is neither epochs nor steps", r.Strategy)
	}
	return c, nil
}

// TrainerSteps is how many optimizer steps Hugging Face's Trainer takes over a loader
// of batches batches: a window that the loader's end cuts short counts as one. A
// positive limit (max_steps) takes the place of epochs.
func TrainerSteps(batches, accumulation int, epochs float64, limit int) int {
	if limit > 0 {
		return limit
	}
	accumulation = max(1, accumulation)
	each := max(1, (batches+accumulation-1)/accumulation)
	return int(math.Ceil(epochs * float64(each)))
}
