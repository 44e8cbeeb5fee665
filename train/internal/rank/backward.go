package rank

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/tensor"
)

// Accumulate advances to the next batch and runs f. It does not average the gradients of modules
// unless the batch ends its window.
func (r *Rank) Accumulate(ctx context.Context, f func(context.Context) error, modules ...tensor.Module) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.Position.Advance(r.Rule)
	defer func(was []tensor.Module) { r.window = was }(r.window)
	r.window = modules
	if r.Position.Sync || r.Rule.EachBatch || r.Group.NoSync() != nil {
		return f(ctx)
	}
	return r.WithSync(modules, false, func() error { return f(ctx) })
}

// WithSync runs f with averaging of the modules' gradients switched on or off.
func (r *Rank) WithSync(modules []tensor.Module, sync bool, f func() error) error {
	if err := r.Group.NoSync(); err != nil && !sync {
		return err
	}
	for _, m := range modules {
		p := r.Group.Find(m)
		if p == nil {
			if r.Comm.Size() > 1 {
				return fmt.Errorf("train: a module of type %T was not prepared", m)
			}
			continue
		}
		defer func(was bool) { p.Sync = was }(p.Sync)
		p.Sync = sync
	}
	return f()
}

// SetSteps changes the number of batches in a window. The count of batches continues.
func (r *Rank) SetSteps(n int) error {
	if n < 1 {
		return fmt.Errorf("train: gradient accumulation: got %d batches in a window, want 1 or more", n)
	}
	r.Rule.Steps = n
	return nil
}

// Backward computes the gradients of loss divided by the number of batches in a window.
func (r *Rank) Backward(ctx context.Context, loss *tensor.Tensor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if loss == nil {
		return errors.New("train: backward: no loss")
	}
	return r.backward(ctx, loss, 1/float32(r.divisor()))
}

// backward computes the gradients of loss times scale, and averages those of the modules that
// synchronise.
func (r *Rank) backward(ctx context.Context, loss *tensor.Tensor, scale float32) error {
	if r.Scaler != nil {
		if err := r.SettleScale(); err != nil {
			return err
		}
		scale *= r.Scaler.Scale()
	}
	if r.Comm.Size() == 1 {
		return tensor.Backward(loss, scale)
	}
	if len(r.Group.Modules) == 1 { // every pass reaches it, so its buckets need not wait for the end
		return r.overlapped(ctx, loss, scale)
	}
	before := r.Group.TakeGradients()
	err := tensor.Backward(loss, scale)
	reached := r.Group.RestoreGradients(before)
	if err != nil {
		return err
	}
	return r.Group.Average(ctx, reached)
}

// overlapped averages gradients while the pass computes earlier ones.
func (r *Rank) overlapped(ctx context.Context, loss *tensor.Tensor, scale float32) error {
	pass, err := r.Group.Begin(ctx, []bool{true})
	if err != nil {
		return err
	}
	if pass == nil {
		return tensor.Backward(loss, scale)
	}
	if err := tensor.BackwardReady(loss, scale, pass.Ready); err != nil {
		_ = pass.Wait() // the pass's error is more informative
		return err
	}
	return pass.Finish()
}

// SettleScale updates the scale after a step in which only some of the optimizers took part,
// because each has its own loss.
func (r *Rank) SettleScale() error {
	if r.Scaler != nil && r.Scaler.Stepped() {
		return r.Scaler.Update()
	}
	return nil
}

// divisor returns the number that Backward divides a loss by. In a corrected short window it also
// rescales the gradients of the window's modules that were summed with another divisor.
func (r *Rank) divisor() int {
	s := &r.Position
	if !r.ShortWindows || !s.Sync || s.Window == 0 || s.Window >= r.Rule.Steps {
		return r.Rule.Steps
	}
	if !s.Cut {
		s.Cut = true
		by := float32(r.Rule.Steps) / float32(s.Window)
		for _, m := range r.Group.Modules {
			if len(r.window) > 0 && !slices.Contains(r.window, m.Module) {
				continue // it accumulates for an optimizer with another window
			}
			for _, p := range m.Params {
				grad := p.Grad()
				for i := range grad {
					grad[i] *= by
				}
			}
		}
	}
	return s.Window
}

// Unscale divides the gradients of all optimizers by the scaler's scale.
func (r *Rank) Unscale() error {
	if r.Scaler == nil {
		return nil
	}
	for _, o := range r.Optimizers {
		if err := r.Scaler.Unscale(o.Optimizer); err != nil {
			return fmt.Errorf("train: unscale gradients: %w", errtext.Below("train", err))
		}
	}
	return nil
}
