package train

import (
	"context"
	"log/slog"
	"math"

	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// StepResult is what a step came to, on this rank.
type StepResult struct {
	// Loss is the batch's, of this rank; of Updates the mean over the window on all ranks.
	Loss float64
	// Synced says that the optimizer stepped (or was to: see
	// [Accelerator.OptimizerStepWasSkipped]). The norms of gradients are 0 where not.
	Synced                            bool
	GradNormPreClip, GradNormPostClip float64
	// WeightNorm is measured after the step. Of Updates it is 0 unless the step is logged.
	WeightNorm float64
	// LR is the first group's rate: of Batches after the schedule moved, as the next step
	// will have it; of Updates the step's own.
	LR float64
	// GlobalStep counts from 0: it is the number of steps before this one.
	GlobalStep int
	// Items is what TrainerConfig.Items counted on all ranks; 0 without it.
	Items int
}

// values are what is logged of a step of Batches.
func (r *StepResult) values() track.Values {
	v := track.Values{"loss": r.Loss, "weight_norm": r.WeightNorm, "lr": r.LR, "global_step": r.GlobalStep}
	if r.Synced {
		v["grad_norm_pre_clip"], v["grad_norm_post_clip"] = r.GradNormPreClip, r.GradNormPostClip
	}
	return v
}

// TrainAStep trains on one batch, in this order: STEP_START; forward and backward pass,
// without averaging gradients over the ranks unless the batch is its window's last; at
// that, the gradients' norm before and after they are clipped, the optimizer's step, and
// zeroing; the schedule's step, with every batch; the result; the log, on the first
// process of the machine; STEP_END. The step is counted after that.
//
// The window is counted over all steps of the run, so one that the end cuts short is not
// stepped. [Accelerator.Backward] divides by the accelerator's own number of steps: an
// accelerator that was not told the window sums its gradients.
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

// optimize measures, clips, steps and drops the gradients of a window.
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

// update trains on a window of Updates.
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

// rate is the first group's.
func (t *Trainer[B]) rate() float64 {
	for _, g := range t.opt.Groups() {
		return g.LR
	}
	return 0
}

// due reports whether what happens every so many steps does after a step; 0 is the end
// of the epoch, which is not here.
func (t *Trainer[B]) due(every, step int) bool {
	return every > 0 && (step+1)%every == 0 || step == 0 && t.args.LogFirstStep && every == t.args.LogSteps
}

// sums are losses since the last log, and since the start.
type sums struct {
	loss, total float64
	steps, all  int
}

func (s *sums) add(loss float64) {
	s.loss, s.total = s.loss+loss, s.total+loss
	s.steps, s.all = s.steps+1, s.all+1
}

// mean takes the mean since it was last taken.
func (s *sums) mean() float64 {
	m := s.loss / float64(s.steps)
	s.loss, s.steps = 0, 0
	return m
}
