package optim

// Prepared is an optimizer as Accelerate wraps it: while gradients accumulate, Step and
// ZeroGrad do nothing.
type Prepared struct {
	Optimizer
	// Syncs says whether this micro step ends an accumulation; nil is always.
	Syncs func() bool
	// Scaler, if any, steps in the optimizer's place and may skip it.
	Scaler *Scaler

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
	stepped, err := p.Scaler.Step(p.Optimizer)
	if err != nil {
		return err
	}
	p.skipped = !stepped
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
