package trainer

import (
	"context"
	"errors"
)

// errInterrupted ends a window that is not finished.
var errInterrupted = errors.New("train: trainer: interrupted")

// interrupts reports on all ranks whether any of them is to stop. All ranks must call it.
func (t *Trainer[B]) interrupts(ctx context.Context) (bool, error) {
	if t.c.Interrupted == nil {
		return false, nil
	}
	stop := []float64{0}
	if t.c.Interrupted(t.State.GlobalStep) {
		stop[0] = 1
	}
	err := t.sum(ctx, stop)
	return stop[0] > 0, err
}

// mark remembers where abandon goes back to.
func (t *Trainer[B]) mark() error {
	if t.c.Interrupted == nil {
		return nil
	}
	return t.c.Store.Mark()
}

// abandon drops an unfinished window and ends the run with a checkpoint of the last finished step.
func (t *Trainer[B]) abandon(ctx context.Context) error {
	t.Optimizer.ZeroGrad()
	t.c.Store.Rewind()
	t.interrupted, t.abandoned, t.Control.StopTraining = true, true, true
	if t.c.Intervals.Save < 0 || t.c.Files.Dir == "" {
		return nil
	}
	return t.Save(ctx)
}

// leaves reports whether an interrupted run ends inside an epoch, whose end is then left to the run
// that resumes.
func (t *Trainer[B]) leaves() bool {
	each := t.Length.PerEpoch
	return t.interrupted && (t.abandoned || each > 0 && t.State.GlobalStep%each != 0)
}
