package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/tensor"
)

// gradientState knows where in a window of accumulation the loop is. Loaders tell it
// when they begin and end.
type gradientState struct {
	step    int  // batches since the last end of a loader
	window  int  // batches since the last step
	sync    bool // this batch ends its window
	ended   bool // the batch before did: the next begins a window
	cut     bool // gradients of this window are divided by window already
	loaders []data.State
}

var _ data.Observer = (*gradientState)(nil)

// BeginLoader makes l the active loader until it ends or another begins.
func (s *gradientState) BeginLoader(l data.State) {
	s.EndLoader(l)
	s.loaders = append(s.loaders, l)
}

// EndLoader makes the loader that was active before l the active one again.
func (s *gradientState) EndLoader(l data.State) {
	s.loaders = slices.DeleteFunc(s.loaders, func(x data.State) bool { return x == l })
}

// active is the loader begun last that has not ended. One that the loop broke out of
// has not: its flags go on to count, as in the reference.
func (s *gradientState) active() data.State {
	if len(s.loaders) == 0 {
		return nil
	}
	return s.loaders[len(s.loaders)-1]
}

func (s *gradientState) atEnd() bool {
	l := s.active()
	return l != nil && l.EndOfDataloader()
}

func (s *gradientState) remainder() int {
	if l := s.active(); l != nil {
		return l.Remainder()
	}
	return -1
}

// advance goes on to the next batch.
func (s *gradientState) advance(g *GradientAccumulation) {
	if s.ended {
		s.window = 0
	}
	s.window++
	s.cut = false
	if on(g.SyncWithDataloader) && s.atEnd() {
		s.step, s.sync = 0, true
	} else {
		s.step++
		s.sync = s.step%g.Steps == 0
	}
	s.ended = s.sync
}

// Accumulate runs fn, one forward and backward pass over one batch with the steps of
// optimizer and scheduler after it. Until the window's last batch those steps do
// nothing, and the gradients of modules stay on their rank. The window ends after Steps
// batches or with the active loader: the one begun last, among those that were prepared
// and have not ended.
func (a *Accelerator) Accumulate(ctx context.Context, fn func(context.Context) error, modules ...Module) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.state.advance(&a.accum)
	if a.state.sync || a.accum.SyncEachBatch {
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
		p := a.find(m)
		if p == nil {
			if a.comm.Size() > 1 {
				return fmt.Errorf("train: a module of type %T was not prepared", m)
			}
			continue
		}
		defer func(was bool) { p.sync = was }(p.sync)
		p.sync = sync
	}
	return f()
}

// SyncGradients reports whether this batch ends its window: when gradients are whole,
// to be clipped and logged. It is true outside [Accelerator.Accumulate].
func (a *Accelerator) SyncGradients() bool { return a.state.sync }

// EndOfDataloader reports whether the active loader is at its last batch.
func (a *Accelerator) EndOfDataloader() bool { return a.state.atEnd() }

// Remainder is how many samples of the active loader's last global batch are no
// padding: 0 if it is full, -1 if that is not known or no loader is active.
func (a *Accelerator) Remainder() int { return a.state.remainder() }

// InDataloader reports whether a prepared loader has begun and not ended.
func (a *Accelerator) InDataloader() bool { return a.state.active() != nil }

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
	if !a.cfg.Corrections.ShortWindow || !s.sync || s.window == 0 || s.window >= a.accum.Steps {
		return a.accum.Steps
	}
	if !s.cut {
		s.cut = true
		by := float32(a.accum.Steps) / float32(s.window)
		for _, p := range a.modules {
			for _, param := range p.params {
				grad := param.Grad()
				for i := range grad {
					grad[i] *= by
				}
			}
		}
	}
	return s.window
}
