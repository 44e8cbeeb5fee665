package train

import (
	"context"
	"log/slog"
	"math"

	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// StepResult is the result of a step on this rank.
type StepResult struct {
	// Loss is this rank's loss of the batch. For Updates it is the mean over the window on all
	// ranks.
	Loss float64
	// Synced says that the step ended a window. The optimizer stepped, unless it skipped an
	// overflow (see [Accelerator.OptimizerStepWasSkipped]). If false, the norms of gradients are 0.
	Synced                            bool
	GradNormPreClip, GradNormPostClip float64
	// WeightNorm is measured after the step. For Updates it is 0 unless the step is logged.
	WeightNorm float64
	// LR is the learning rate of the first group: for Batches that of the next step, for Updates
	// that of this one.
	LR float64
	// GlobalStep is the number of steps before this one.
	GlobalStep int
	// Items is the number that TrainerConfig.Items counted on all ranks, or 0 without it.
	Items int
}

// values returns the logged values of a step of Batches.
func (r *StepResult) values() track.Values {
	v := track.Values{"loss": r.Loss, "weight_norm": r.WeightNorm, "lr": r.LR, "global_step": r.GlobalStep}
	if r.Synced {
		v["grad_norm_pre_clip"], v["grad_norm_post_clip"] = r.GradNormPreClip, r.GradNormPostClip
	}
	return v
}

// TrainAStep trains on one batch. In this order: it calls the StepStart callbacks; runs the forward
// and the backward pass, without averaging over the ranks before the window's last batch; at that
// batch measures the norm of the gradients, clips them, measures the norm again, steps the
// optimizer and drops the gradients; steps the schedule, with every batch; makes the result; logs
// it on the first rank of the machine; and calls the StepEnd callbacks. Then it counts the step.
//
// Windows continue across epochs, so the optimizer does not step for a last window that is not
// full. [Accelerator.Backward] divides by the accelerator's own number of steps. If that is 1, the
// gradients of a window are summed.
func (t *Trainer[B]) TrainAStep(ctx context.Context, batch B) (StepResult, error) {
	r := StepResult{GlobalStep: t.state.GlobalStep, Synced: (t.state.GlobalStep+1)%t.window == 0}
	if err := t.trigger(ctx, Moment{Event: StepStart, Batch: batch}); err != nil {
		return r, err
	}
	t.setTraining(true)
	pass := func() error {
		loss, err := t.c.ComputeLoss(ctx, batch)
		if err != nil {
			return err
		}
		r.Loss = float64(loss.Item())
		return t.acc.Backward(ctx, loss)
	}
	var err error
	if r.Synced {
		err = pass()
	} else {
		err = t.acc.NoSync(t.c.Model, pass)
	}
	if err != nil {
		return r, err
	}
	if r.Synced {
		if err := t.optimize(&r); err != nil {
			return r, err
		}
	}
	if t.sched != nil && !t.plateau {
		if err := t.sched.Step(); err != nil {
			return r, err
		}
	}
	r.WeightNorm, r.LR = t.observer.WeightNorm(), t.rate()
	if t.due(t.args.LogSteps, r.GlobalStep) {
		attrs := []slog.Attr{slog.Float64("epoch", round4(t.state.Epoch)), slog.Int("step", r.GlobalStep), slog.Float64("loss", r.Loss)}
		if err := t.tell(ctx, r.values(), r.GlobalStep, attrs); err != nil {
			return r, err
		}
	}
	t.sums.add(r.Loss)
	err = t.trigger(ctx, Moment{Event: StepEnd, Batch: batch, Result: &r})
	t.state.GlobalStep++
	return r, err
}

// optimize measures, clips, applies and drops the gradients of a window.
func (t *Trainer[B]) optimize(r *StepResult) error {
	if err := t.acc.UnscaleGradients(); err != nil {
		return err
	}
	r.GradNormPreClip = t.observer.GradientNorm()
	r.GradNormPostClip = r.GradNormPreClip
	if t.args.MaxGradNorm > 0 {
		t.clip()
		r.GradNormPostClip = t.observer.GradientNorm()
	}
	if err := t.opt.Step(); err != nil {
		return err
	}
	t.opt.ZeroGrad()
	return nil
}

// update trains on one window of Updates.
func (t *Trainer[B]) update(ctx context.Context, w *Window[B]) (StepResult, error) {
	r := StepResult{GlobalStep: t.state.GlobalStep, Synced: true}
	if err := t.trigger(ctx, Moment{Event: StepStart}); err != nil {
		return r, err
	}
	t.setTraining(true)
	begun := false
	sum, err := w.Each(ctx, func(ctx context.Context, b B) (*tensor.Tensor, error) {
		if begun {
			if err := t.trigger(ctx, Moment{Event: SubstepEnd}); err != nil {
				return nil, err
			}
		}
		begun = true
		return t.c.ComputeLoss(ctx, b)
	})
	if err != nil {
		return r, err
	}
	all, err := Reduce(ctx, t.acc, []float64{sum}, ReduceSum)
	if err != nil {
		return r, err
	}
	r.Loss = all[0] / float64(w.Items)
	if t.c.Items != nil {
		r.Items = w.Items
	}
	if w.Items == 0 { // nothing to learn from
		r.Loss = math.NaN()
	}
	if err := t.optimize(&r); err != nil {
		return r, err
	}
	r.LR = t.rate()
	if t.sched != nil && !t.plateau {
		if err := t.sched.Step(); err != nil {
			return r, err
		}
	}
	t.sums.add(r.Loss)
	t.state.GlobalStep++
	return r, nil
}

// rate returns the learning rate of the first group.
func (t *Trainer[B]) rate() float64 {
	for _, g := range t.opt.Groups() {
		return g.LR
	}
	return 0
}

// due reports whether an interval of every steps ends at this step. 0 means the end of the epoch,
// and is never due here.
func (t *Trainer[B]) due(every, step int) bool {
	return every > 0 && (step+1)%every == 0 || step == 0 && t.args.LogFirstStep && every == t.args.LogSteps
}

// sums holds the sums of losses since the last log and since the start.
type sums struct {
	loss, total float64
	steps, all  int
}

func (s *sums) add(loss float64) {
	s.loss, s.total = s.loss+loss, s.total+loss
	s.steps, s.all = s.steps+1, s.all+1
}

// mean returns the mean since its last call.
func (s *sums) mean() float64 {
	m := s.loss / float64(s.steps)
	s.loss, s.steps = 0, 0
	return m
}
