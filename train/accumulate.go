package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/train/tensor"
)

// Accumulate runs fn, which makes one forward and backward pass over one batch and then steps the
// optimizer and the scheduler. Before the last batch of an accumulation window those steps do
// nothing, and gradients of modules are not averaged over the ranks. A window ends after Steps
// batches, or with the active loader: the prepared loader that was begun last and has not ended.
func (a *Accelerator) Accumulate(ctx context.Context, fn func(context.Context) error, modules ...Module) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.state.Advance(a.accum.Steps, on(a.accum.SyncWithDataloader))
	if a.state.Sync || a.accum.SyncEachBatch {
		return fn(ctx)
	}
	return a.setSync(modules, false, func() error { return fn(ctx) })
}

// NoSync runs f without averaging the gradients of m over the ranks. Optimizers still step, and
// [Accelerator.SyncGradients] does not change.
func (a *Accelerator) NoSync(m Module, f func() error) error {
	return a.setSync([]Module{m}, false, f)
}

// TriggerSyncInBackward runs f with the gradients of m averaged over the ranks, even inside
// [Accelerator.NoSync] or a window.
func (a *Accelerator) TriggerSyncInBackward(m Module, f func() error) error {
	return a.setSync([]Module{m}, true, f)
}

func (a *Accelerator) setSync(modules []Module, sync bool, f func() error) error {
	for _, m := range modules {
		p := a.group.Find(m)
		if p == nil {
			if a.comm.Size() > 1 {
				return fmt.Errorf("train: a module of type %T was not prepared", m)
			}
			continue
		}
		defer func(was bool) { p.Sync = was }(p.Sync)
		p.Sync = sync
	}
	return f()
}

// SyncGradients reports whether this batch ends its window, so that gradients are complete and can
// be clipped and logged. It is true outside [Accelerator.Accumulate].
func (a *Accelerator) SyncGradients() bool { return a.state.Sync }

// EndOfDataloader reports whether the active loader is at its last batch.
func (a *Accelerator) EndOfDataloader() bool { return a.state.AtEnd() }

// Remainder returns how many samples of the active loader's last global batch are not padding: 0 if
// the batch is full, -1 if it is unknown or no loader is active.
func (a *Accelerator) Remainder() int { return a.state.Remainder() }

// InDataloader reports whether a prepared loader has begun and not ended.
func (a *Accelerator) InDataloader() bool { return a.state.Active() != nil }

// GradientAccumulationSteps returns the number of batches in a window.
func (a *Accelerator) GradientAccumulationSteps() int { return a.accum.Steps }

// SetGradientAccumulationSteps changes the number of batches in a window. The count continues: a
// window ends where the number of batches since the loader's start is a multiple of n.
func (a *Accelerator) SetGradientAccumulationSteps(n int) error {
	if n < 1 {
		return fmt.Errorf("train: a window of %d batches", n)
	}
	a.accum.Steps = n
	return nil
}

// Backward computes the gradients of loss divided by the number of batches in a window, and adds
// them to the parameters' gradients. If this batch synchronises, it then averages the gradients of
// the prepared modules behind loss over the ranks. A window that the loader's end cut short is
// divided by Steps too, as in Accelerate, unless [Corrections].ShortWindow is set.
func (a *Accelerator) Backward(ctx context.Context, loss *tensor.Tensor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if loss == nil {
		return errors.New("train: backward: no loss")
	}
	return a.backward(ctx, loss, 1/float32(a.divisor()))
}

// backward computes the gradients of loss times scale.
func (a *Accelerator) backward(ctx context.Context, loss *tensor.Tensor, scale float32) error {
	if s := a.cfg.Scaler; s != nil {
		if err := a.settleScale(); err != nil {
			return err
		}
		scale *= s.Scale()
	}
	if a.comm.Size() == 1 {
		return tensor.Backward(loss, scale)
	}
	return a.backwardAll(ctx, loss, scale)
}

// settleScale updates the scale after a step in which only some of the optimizers took part,
// because each has a loss of its own.
func (a *Accelerator) settleScale() error {
	if s := a.cfg.Scaler; s != nil && s.Stepped() {
		return s.Update()
	}
	return nil
}

// divisor returns the number that Backward divides a loss by. In a corrected short window it also
// rescales the gradients that were summed under another divisor.
func (a *Accelerator) divisor() int {
	s := &a.state
	if !a.cfg.Corrections.ShortWindow || !s.Sync || s.Window == 0 || s.Window >= a.accum.Steps {
		return a.accum.Steps
	}
	if !s.Cut {
		s.Cut = true
		by := float32(a.accum.Steps) / float32(s.Window)
		for _, p := range a.group.Modules {
			for _, param := range p.Params {
				grad := param.Grad()
				for i := range grad {
					grad[i] *= by
				}
			}
		}
	}
	return s.Window
}
