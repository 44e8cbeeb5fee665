package trainer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// StepResult is train.StepResult, which documents the fields.
type StepResult struct {
	Loss                              float64
	Synced                            bool
	GradNormPreClip, GradNormPostClip float64
	WeightNorm                        float64
	LR                                float64
	GlobalStep                        int
	Items                             int
}

// values returns the logged values of a step of one batch.
func (r *StepResult) values() track.Values {
	v := track.Values{"loss": r.Loss, "weight_norm": r.WeightNorm, "lr": r.LR, "global_step": r.GlobalStep}
	if r.Synced {
		v["grad_norm_pre_clip"], v["grad_norm_post_clip"] = r.GradNormPreClip, r.GradNormPostClip
	}
	return v
}

// TrainBatch trains on one batch and counts a step: train.Trainer.TrainAStep.
func (t *Trainer[B]) TrainBatch(ctx context.Context, batch B) (StepResult, error) {
	step := t.State.GlobalStep
	r := StepResult{GlobalStep: step, Synced: (step+1)%t.Length.Window == 0}
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
		return t.rank.Backward(ctx, loss)
	}
	var err error
	if r.Synced || t.rank.Group.NoSync() != nil {
		err = pass()
	} else {
		err = t.rank.WithSync([]tensor.Module{t.c.Model}, false, pass)
	}
	if err != nil {
		return r, err
	}
	if r.Synced {
		if err := t.optimize(&r); err != nil {
			return r, err
		}
	}
	if err := t.schedulerStep(); err != nil {
		return r, err
	}
	r.WeightNorm, r.LR = t.c.Observer.WeightNorm(), t.rate()
	if t.c.Intervals.LogDue(step) {
		attrs := []slog.Attr{slog.Float64("epoch", round4(t.State.Epoch)), slog.Int("step", step), slog.Float64("loss", r.Loss)}
		if err := t.tell(ctx, r.values(), step, attrs); err != nil {
			return r, err
		}
	}
	t.losses.Add(r.Loss)
	err = t.trigger(ctx, Moment{Event: StepEnd, Batch: batch, Result: &r})
	t.State.GlobalStep++
	return r, err
}

// trainWindow trains on one window and counts a step.
func (t *Trainer[B]) trainWindow(ctx context.Context, w *rank.Window[B]) (StepResult, error) {
	r := StepResult{GlobalStep: t.State.GlobalStep, Synced: true}
	if err := t.trigger(ctx, Moment{Event: StepStart}); err != nil {
		return r, err
	}
	t.setTraining(true)
	begun, done := 0, 0
	sum, err := w.Each(ctx, func(ctx context.Context, batches []B) ([]*tensor.Tensor, error) {
		for range begun { // for the previous losses, whose gradients are complete
			if err := t.trigger(ctx, Moment{Event: SubstepEnd}); err != nil {
				return nil, err
			}
		}
		if done > 0 && done < w.Least() { // all ranks are here
			if stop, err := t.interrupts(ctx); stop || err != nil {
				return nil, cmp.Or(err, errInterrupted)
			}
		}
		losses, err := t.computeLosses(ctx, batches)
		begun = len(losses)
		done += begun
		return losses, err
	})
	for i := 1; err == nil && i < begun; i++ { // the last batch ends the step
		err = t.trigger(ctx, Moment{Event: SubstepEnd})
	}
	if err != nil {
		return r, err
	}
	all := append([]float64{sum, t.tokens(w.Batches)}, t.c.Meter.batches(w.Most())...)
	if err := t.sum(ctx, all); err != nil {
		return r, err
	}
	t.State.NumInputTokensSeen += int(all[1])
	t.c.Meter.fold(all[2:], w.Most())
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
	if err := t.schedulerStep(); err != nil {
		return r, err
	}
	t.losses.Add(r.Loss)
	t.State.GlobalStep++
	return r, nil
}

// computeLosses returns the losses of one or more of a window's batches.
func (t *Trainer[B]) computeLosses(ctx context.Context, batches []B) ([]*tensor.Tensor, error) {
	if f := t.c.ComputeLosses; f != nil {
		return f(ctx, batches)
	}
	loss, err := t.c.ComputeLoss(ctx, batches[0])
	return []*tensor.Tensor{loss}, err
}

// tokens counts the tokens of batches.
func (t *Trainer[B]) tokens(batches []B) float64 {
	n := 0
	if t.c.Tokens != nil {
		for _, b := range batches {
			n += t.c.Tokens(b)
		}
	}
	return float64(n)
}

// optimize measures, clips, applies and drops the gradients of a window.
func (t *Trainer[B]) optimize(r *StepResult) error {
	if err := t.rank.Unscale(); err != nil {
		return err
	}
	r.GradNormPreClip = t.c.Observer.GradientNorm()
	r.GradNormPostClip = r.GradNormPreClip
	if t.c.MaxNorm > 0 {
		if _, err := t.rank.ClipNorm(t.params, t.c.MaxNorm, 2); err != nil {
			return err
		}
		r.GradNormPostClip = t.c.Observer.GradientNorm()
	}
	if err := t.Optimizer.Step(); err != nil {
		return err
	}
	t.Optimizer.ZeroGrad()
	return nil
}

// schedulerStep advances the schedule. A Plateau advances with evaluations instead.
func (t *Trainer[B]) schedulerStep() error {
	if t.Scheduler == nil || t.plateau {
		return nil
	}
	return t.Scheduler.Step()
}

// rate returns the learning rate of the first group.
func (t *Trainer[B]) rate() float64 {
	for _, g := range t.Optimizer.Groups() {
		return g.LR
	}
	return 0
}

// sum replaces values by their sums over all ranks.
func (t *Trainer[B]) sum(ctx context.Context, values []float64) error {
	if err := collective.AllReduce(ctx, t.rank.Comm, collective.Sum, values); err != nil {
		return fmt.Errorf("train: reduce: %w", err)
	}
	return nil
}
