package optim

// Prepared wraps an optimizer as Accelerate does: while gradients accumulate, Step and ZeroGrad do
// nothing.
type Prepared struct {
	Optimizer
	// Syncs reports whether this micro step ends an accumulation. nil means always.
	Syncs func() bool
	// Scaler, if not nil, performs the optimizer's step and may skip it.
	Scaler *Scaler
	// Peers returns the optimizers that share the scaler, including this one. nil means only this
	// one. The scale is updated once all of them have stepped, or when one is about to step
	// again, or by the caller (see [Scaler.Stepped]). Accelerate updates it with each optimizer:
	// with several optimizers on one loss, all but the first divide their gradients by another
	// scale than the one applied, or twice.
	Peers func() []*Prepared

	skipped bool
}

func (p *Prepared) syncs() bool { return p.Syncs == nil || p.Syncs() }

// Step steps the optimizer, unless gradients accumulate or, with a Scaler, overflowed.
func (p *Prepared) Step() error {
	if !p.syncs() {
		return nil
	}
	if p.Scaler == nil {
		err := p.Optimizer.Step()
		if s, ok := p.Optimizer.(interface{ StepWasSkipped() bool }); ok {
			p.skipped = s.StepWasSkipped()
		}
		return err
	}
	if p.Scaler.check(p.Optimizer).stepped { // not all of the others have stepped
		if err := p.Scaler.Update(); err != nil {
			return err
		}
	}
	stepped, err := p.Scaler.Step(p.Optimizer)
	if err != nil {
		return err
	}
	p.skipped = !stepped
	if p.Peers != nil {
		for _, o := range p.Peers() {
			if !p.Scaler.check(o.Optimizer).stepped {
				return nil
			}
		}
	}
	return p.Scaler.Update()
}

// ZeroGrad drops gradients, unless they accumulate.
func (p *Prepared) ZeroGrad() {
	if p.syncs() {
		p.Optimizer.ZeroGrad()
	}
}

// StepWasSkipped reports whether the last due step was skipped because of an overflow.
func (p *Prepared) StepWasSkipped() bool { return p.skipped }

// PreparedScheduler wraps a scheduler as Accelerate does: it steps only if the optimizer did, and
// then once per rank, because a schedule counts the batches of all ranks.
type PreparedScheduler struct {
	Scheduler
	// Optimizers are the optimizers whose steps it follows.
	Optimizers []*Prepared
	// World is the number of ranks; 0 means 1.
	World int
	// SplitBatches means that ranks share each batch. The schedule then steps once instead of
	// once per rank.
	SplitBatches bool
	// Free makes every call step (step_scheduler_with_optimizer=False).
	Free bool
	// Adjust counts calls while gradients accumulate, which affects only the end of a OneCycle.
	// Accelerate documents this for its adjust_scheduler but does not implement it.
	Adjust bool
	// Syncs reports whether this micro step ends an accumulation. nil means always.
	Syncs func() bool
}

// Step takes the steps that are due: none, one, or one for each rank.
func (p *PreparedScheduler) Step(metric ...float64) error {
	if p.Free {
		return p.Scheduler.Step(metric...)
	}
	if p.Syncs != nil && !p.Syncs() {
		if s, ok := p.Scheduler.(interface{ Skip() }); ok && p.Adjust {
			s.Skip()
		}
		return nil
	}
	for _, o := range p.Optimizers {
		if o.StepWasSkipped() {
			return nil
		}
	}
	if p.SplitBatches {
		return p.Scheduler.Step(metric...)
	}
	for range max(1, p.World) {
		if c, ok := p.Scheduler.(*OneCycle); ok && c.StepCount() > c.TotalSteps() {
			continue // it ends there, whatever drop_last made of the count
		}
		if err := p.Scheduler.Step(metric...); err != nil {
			return err
		}
	}
	return nil
}
