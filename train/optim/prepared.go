package optim

// Prepared is an optimizer as Accelerate wraps it: while gradients accumulate, Step and
// ZeroGrad do nothing.
type Prepared struct {
	Optimizer
	// Syncs says whether this micro step ends an accumulation; nil is always.
	Syncs func() bool
	// Scaler, if any, steps in the optimizer's place and may skip it.
	Scaler *Scaler
	// Peers are the optimizers that the scaler steps, this one among them; nil is this one
	// alone. The scale moves once all of them have stepped, or one is to step again (or the
	// caller moves it, see [Scaler.Stepped]): Accelerate moves it with each, so that of
	// optimizers that step on one loss all but the first divide their gradients by another
	// scale than it was multiplied by, or twice.
	Peers func() []*Prepared

	skipped bool
}

func (p *Prepared) syncs() bool { return p.Syncs == nil || p.Syncs() }

// Step steps, unless gradients accumulate or, with a Scaler, overflowed.
func (p *Prepared) Step() error {
	if !p.syncs() {
		return nil
	}
	if p.Scaler == nil {
		return p.Optimizer.Step()
	}
	if p.Scaler.check(p.Optimizer).stepped { // others did not come along
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

// StepWasSkipped says that the last step that was due was left out for an overflow.
func (p *Prepared) StepWasSkipped() bool { return p.skipped }

// PreparedScheduler is a scheduler as Accelerate wraps it: it moves only where the
// optimizer did, and then once for each rank, because a schedule counts the batches of
// all of them.
type PreparedScheduler struct {
	Scheduler
	// Optimizers are those it waits for.
	Optimizers []*Prepared
	// World is the number of ranks; 0 is 1.
	World int
	// SplitBatches means that batches were cut, not multiplied, by the ranks: one step.
	SplitBatches bool
	// Free lets every call step (step_scheduler_with_optimizer=False).
	Free bool
	// Adjust counts calls while gradients accumulate, which only a OneCycle's end heeds.
	// Accelerate's adjust_scheduler, documented to do this, is never read there.
	Adjust bool
	// Syncs says whether this micro step ends an accumulation; nil is always.
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
