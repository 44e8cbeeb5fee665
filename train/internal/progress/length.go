package progress

import (
	"errors"
	"fmt"
	"math"

	"github.com/heftai/heft/train/optim"
)

// Goal is the requested length of a run.
type Goal struct {
	Strategy optim.Strategy // if empty: by steps if only MaxSteps is given, otherwise by epochs
	Epochs   float64        // 0 means 3
	MaxSteps int
	// Accumulation is the number of batches in a window. RealBatch, if positive, determines it
	// instead: it is the number of samples per optimizer step on all ranks.
	Accumulation, RealBatch int
	// PerBatch counts one step per batch instead of per window.
	PerBatch bool
}

// Data describes the training data of a run.
type Data struct {
	Samples   int // 0 if unknown
	BatchSize int // of one rank, or 0 if batches have several sizes
	World     int // ranks
}

// Length is the length of a run in steps.
type Length struct {
	Goal
	BatchSize int // of one rank, at least 1
	Window    int // batches in a window
	Batches   int // batches per epoch on this rank, or 0 if unknown
	PerEpoch  int // steps per epoch, or 0 if unknown
	MaxSteps  int // steps of the run, or 0 if unknown
	Epochs    int // epochs of the run, counting a partial one
	// ScheduleSteps is the number of steps that a schedule of the run counts.
	ScheduleSteps int
}

// NewLength computes the windows of a run. [Length.Count] completes the Length once the data is
// split between the ranks.
func NewLength(g Goal, d Data) (*Length, error) {
	if g.Strategy == "" {
		g.Strategy = optim.ByEpochs
		if g.MaxSteps > 0 && g.Epochs == 0 {
			g.Strategy = optim.BySteps
		}
	}
	if g.Epochs == 0 {
		g.Epochs = 3
	}
	if g.Strategy == optim.BySteps && g.MaxSteps < 1 || g.Epochs < 0 || math.IsNaN(g.Epochs) || math.IsInf(g.Epochs, 0) {
		return nil, fmt.Errorf("train: trainer: got %v epochs and %d steps, which the strategy %q cannot count", g.Epochs, g.MaxSteps, g.Strategy)
	}
	if d.BatchSize == 0 {
		if g.RealBatch > 0 {
			return nil, errors.New("train: trainer: a real batch size needs batches of one size")
		}
		d.BatchSize = 1
	}
	counts, err := optim.Count(optim.RunLength{Samples: d.Samples, BatchSize: d.BatchSize, World: d.World, Accumulation: g.Accumulation,
		RealBatch: g.RealBatch, Strategy: g.Strategy, Epochs: g.Epochs, Steps: g.MaxSteps})
	if err != nil {
		return nil, fmt.Errorf("train: trainer: %w", err)
	}
	return &Length{Goal: g, BatchSize: d.BatchSize, Window: counts.Accumulation, ScheduleSteps: counts.ScheduleSteps}, nil
}

// Count computes the numbers of steps from the number of batches per epoch on this rank. unknown,
// if not nil, is the reason why that number is not known. named reports whether a schedule needs
// the number of steps.
func (l *Length) Count(batches int, unknown error, named bool) error {
	known, g := unknown == nil, &l.Goal
	if !known && g.Strategy == optim.ByEpochs && (named || !g.PerBatch && g.Epochs != math.Trunc(g.Epochs)) {
		return fmt.Errorf("train: trainer: counting the steps of %v epochs: %w", g.Epochs, unknown)
	}
	if known {
		if l.Batches, l.PerEpoch = batches, batches; !g.PerBatch {
			l.PerEpoch = optim.TrainerSteps(batches, l.Window, 1, 0)
		}
	}
	switch {
	case g.Strategy == optim.BySteps || g.MaxSteps > 0:
		l.MaxSteps, l.Epochs = g.MaxSteps, math.MaxInt32
		if l.PerEpoch > 0 {
			l.Epochs = (l.MaxSteps + l.PerEpoch - 1) / l.PerEpoch
		}
	case !g.PerBatch && known:
		l.MaxSteps = optim.TrainerSteps(batches, l.Window, g.Epochs, 0)
		l.Epochs = int(math.Ceil(g.Epochs))
	default:
		l.Epochs = int(math.Ceil(g.Epochs))
		l.MaxSteps = int(math.Ceil(g.Epochs * float64(batches)))
	}
	if !g.PerBatch {
		l.ScheduleSteps = l.MaxSteps
	}
	return nil
}

// Epoch returns the number of passes over the data after the given steps, with a fraction. ok is
// false if the number of batches is unknown.
func (l *Length) Epoch(steps int) (epoch float64, ok bool) {
	if l.Batches == 0 {
		return 0, false
	}
	each := l.Window
	if l.PerBatch {
		each = 1
	}
	rest := steps % l.PerEpoch * each
	return float64(steps/l.PerEpoch) + float64(rest)/float64(l.Batches), true
}
