package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/train/tensor"
)

// Accumulate runs fn, one forward and backward pass over one batch with the steps of
// optimizer and scheduler after it. Until the window's last batch those steps do
// nothing, and the gradients of modules stay on their rank. The window ends after Steps
// batches or with the active loader: the one begun last, among those that were prepared
// and have not ended.
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

// NoSync keeps the gradients of m on their rank in the backward passes that f runs.
// Nothing else changes: optimizers step, [Accelerator.SyncGradients] is what it was.
func (a *Accelerator) NoSync(m Module, f func() error) error {
	return a.setSync([]Module{m}, false, f)
}

// TriggerSyncInBackward averages the gradients of m over the ranks in the backward
// passes that f runs, though within [Accelerator.NoSync] or a window.
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

// SyncGradients reports whether this batch ends its window: when gradients are whole,
// to be clipped and logged. It is true outside [Accelerator.Accumulate].
func (a *Accelerator) SyncGradients() bool { return a.state.Sync }

// EndOfDataloader reports whether the active loader is at its last batch.
func (a *Accelerator) EndOfDataloader() bool { return a.state.AtEnd() }

// Remainder is how many samples of the active loader's last global batch are no
// padding: 0 if it is full, -1 if that is not known or no loader is active.
func (a *Accelerator) Remainder() int { return a.state.Remainder() }

// InDataloader reports whether a prepared loader has begun and not ended.
func (a *Accelerator) InDataloader() bool { return a.state.Active() != nil }

// GradientAccumulationSteps is the number of batches of a window.
func (a *Accelerator) GradientAccumulationSteps() int { return a.accum.Steps }

// SetGradientAccumulationSteps changes the number of batches of a window. The count
// goes on: a window ends where the batches since the loader's start are a multiple of n.
func (a *Accelerator) SetGradientAccumulationSteps(n int) error {
	if n < 1 {
		return fmt.Errorf("train: a window of %d batches", n)
	}
	a.accum.Steps = n
	return nil
}

// Backward differentiates loss divided by the number of batches of a window, adding to
// the parameters' gradients, and averages over the ranks the gradients of the prepared
// modules behind it that synchronize. Also a window that the loader's end cut short is
// divided by Steps, as in the reference, unless [Corrections].ShortWindow is set.
func (a *Accelerator) Backward(ctx context.Context, loss *tensor.Tensor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if loss == nil {
		return errors.New("train: backward: no loss")
	}
	return a.backward(ctx, loss, 1/float32(a.divisor()))
}

// backward differentiates loss times scale.
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

// settleScale moves the scale where only some of the optimizers stepped: those that take
// turns, each on a loss of its own.
func (a *Accelerator) settleScale() error {
	if s := a.cfg.Scaler; s != nil && s.Stepped() {
		return s.Update()
	}
	return nil
}

// divisor is what Backward divides a loss by. In a short window that is corrected, the
// gradients that were gathered under another divisor are brought to this one.
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
