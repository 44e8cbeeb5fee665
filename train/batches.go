package train

import (
	"context"
	"iter"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
)

// BatchesOf yields the batches of one walk through a loader. An error ends the loop, and
// [Accelerator.Err] returns it afterwards:
//
//	for batch := range train.BatchesOf(ctx, acc, loader) {
//		…
//	}
//	return acc.Err()
func BatchesOf[B any](ctx context.Context, a *Accelerator, l *data.Loader[B]) iter.Seq[B] {
	return func(yield func(B) bool) {
		for batch, err := range l.All(ctx) {
			if err != nil {
				if a.walk == nil {
					a.walk = err
				}
				return
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// Err returns the first error that ended a loop over [BatchesOf] since the last call, or nil.
func (a *Accelerator) Err() error {
	err := a.walk
	a.walk = nil
	return err
}

// PrepareModel is [Accelerator.Prepare] of a module.
func (a *Accelerator) PrepareModel(m Module) error { return a.Prepare(m) }

// PrepareOptimizer is [Accelerator.Prepare] of an optimizer. It returns the prepared one.
func (a *Accelerator) PrepareOptimizer(o optim.Optimizer) (optim.Optimizer, error) {
	err := a.Prepare(&o)
	return o, err
}

// PrepareScheduler is [Accelerator.Prepare] of a schedule. It returns the prepared one.
func (a *Accelerator) PrepareScheduler(s optim.Scheduler) (optim.Scheduler, error) {
	err := a.Prepare(&s)
	return s, err
}
