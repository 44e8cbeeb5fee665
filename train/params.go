package train

import (
	"fmt"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Params returns the trainable parameters of modules for an optimizer, each once.
func Params(modules ...Module) []optim.Param {
	var all []optim.Param
	seen := map[*tensor.Parameter]bool{}
	for _, m := range modules {
		for _, p := range m.Parameters() {
			if p != nil && p.Trainable && !seen[p] {
				seen[p] = true
				all = append(all, p)
			}
		}
	}
	return all
}

var _ optim.Stored = (*tensor.Parameter)(nil)

// prepareOptimizer wraps the optimizer in *o.
func (a *Accelerator) prepareOptimizer(o *optim.Optimizer) error {
	if *o == nil {
		return fmt.Errorf("the optimizer is nil")
	}
	p, ok := (*o).(*optim.Prepared)
	if !ok {
		p = &optim.Prepared{Optimizer: *o}
		*o = p
	}
	return a.adoptOptimizer(p)
}

func (a *Accelerator) adoptOptimizer(p *optim.Prepared) error {
	if p.Syncs != nil {
		return errPrepared
	}
	p.Syncs = a.SyncGradients
	p.Scaler = a.cfg.Scaler
	p.Peers = func() []*optim.Prepared { return a.optimizers }
	a.optimizers = append(a.optimizers, p)
	return nil
}

// prepareScheduler wraps the scheduler in *s.
func (a *Accelerator) prepareScheduler(s *optim.Scheduler) error {
	if *s == nil {
		return fmt.Errorf("the scheduler is nil")
	}
	if _, ok := (*s).(*optim.PreparedScheduler); ok {
		return errPrepared
	}
	p := &optim.PreparedScheduler{
		Scheduler:    *s,
		Optimizers:   a.optimizers,
		World:        a.comm.Size(),
		SplitBatches: a.cfg.DataLoader.SplitBatches,
		Free:         !on(a.cfg.StepSchedulerWithOptimizer),
		Adjust:       a.cfg.Corrections.AdjustScheduler && on(a.accum.AdjustScheduler),
		Syncs:        a.SyncGradients,
	}
	*s = p
	a.schedulers = append(a.schedulers, p)
	return nil
}

// ClipGradNorm scales the gradients of params together so that their p-norm is at most limit, and
// returns the norm before scaling. It first unscales gradients that a Scaler scaled. Call it only
// if [Accelerator.SyncGradients] is true: before, gradients are incomplete.
func (a *Accelerator) ClipGradNorm(params []optim.Param, limit, p float64) (float64, error) {
	if err := a.UnscaleGradients(); err != nil {
		return 0, err
	}
	return optim.ClipNorm(params, limit, p), nil
}

// ClipGradValue limits every gradient of params to ±limit, after unscaling.
func (a *Accelerator) ClipGradValue(params []optim.Param, limit float64) error {
	if err := a.UnscaleGradients(); err != nil {
		return err
	}
	optim.ClipValue(params, limit)
	return nil
}

// UnscaleGradients divides the gradients of all prepared optimizers by Config.Scaler's scale.
// Calling it twice for one step is an error.
func (a *Accelerator) UnscaleGradients() error {
	if a.cfg.Scaler == nil {
		return nil
	}
	for _, o := range a.optimizers {
		if err := a.cfg.Scaler.Unscale(o.Optimizer); err != nil {
			return wrap("unscale gradients", err)
		}
	}
	return nil
}

// OptimizerStepWasSkipped reports whether any prepared optimizer skipped its last step because of
// an overflow.
func (a *Accelerator) OptimizerStepWasSkipped() bool {
	for _, o := range a.optimizers {
		if o.StepWasSkipped() {
			return true
		}
	}
	return false
}
