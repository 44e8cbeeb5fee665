package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/heftai/heft/train/internal/evaluation"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/internal/trainer"
	"github.com/heftai/heft/train/optim"
)

// Trainer runs a training loop on one rank. It must be used only by the goroutine of its rank.
// [NewTrainer] makes one.
type Trainer[B any] struct {
	acc *Accelerator
	run *trainer.Trainer[B]
}

// NewTrainer prepares c's model, optimizer, loaders and, for [Batches], scheduler. It fails if a
// required field is missing or RealBatchSize is not divisible ([optim.ErrRealBatch]).
func NewTrainer[B any](c TrainerConfig[B]) (*Trainer[B], error) {
	acc, a := c.Accelerator, &c.Arguments
	if acc == nil {
		var err error
		if acc, err = New(Config{GradientAccumulationSteps: a.GradientAccumulationSteps}); err != nil {
			return nil, err
		}
	}
	if acc.project.AutomaticCheckpointNaming {
		return nil, errors.New("train: trainer: checkpoints are named by their step, not automatically")
	}
	if a.Unit != Updates && a.Unit != Batches {
		return nil, fmt.Errorf("train: trainer: Unit: got %d, want Updates or Batches", a.Unit)
	}
	if i := slices.Index(c.Callbacks, nil); i >= 0 {
		return nil, fmt.Errorf("train: trainer: Callbacks[%d] is nil", i)
	}
	listener := &listener{callbacks: c.Callbacks}
	config := trainer.Config[B]{
		Rank: acc.rank, Store: acc.store,
		Model: c.Model, ComputeLoss: c.ComputeLoss, ComputeLosses: c.ComputeLosses, Items: c.Items, Tokens: c.Tokens, BeforeWindow: c.BeforeWindow, Interrupted: c.Interrupted, Optimizer: c.Optimizer, Scheduler: c.Scheduler,
		Train: c.Train, Evals: c.evals(), ComputeMetrics: c.ComputeMetrics, WithoutPerplexity: c.WithoutPerplexity, From: c.From, Observer: c.Observer,
		Gather: func(ctx context.Context, e evaluation.Batch) (evaluation.Batch, error) {
			return GatherForMetrics(ctx, acc, e)
		},
		Goal: a.goal(), Files: a.files(), MaxNorm: a.MaxGradNorm,
		Schedule:  trainer.Schedule{Name: a.Schedule, Warmup: a.WarmupSteps, Options: a.ScheduleOptions},
		Intervals: progress.Intervals{Log: a.LogSteps, Eval: a.EvalSteps, Save: a.SaveSteps, First: a.LogFirstStep},
		Best:      progress.Best{Metric: a.MetricForBest, Greater: a.GreaterIsBetter, Required: a.LoadBestAtEnd},
		Listener:  listener, Log: acc.localLog(), Warn: acc.Logger(), Track: acc.Log,
	}
	if c.Meter != nil {
		config.Meter = c.Meter.m
	}
	if f := c.EvaluateBatch; f != nil {
		config.EvaluateBatch = func(ctx context.Context, b B) (evaluation.Batch, error) {
			e, err := f(ctx, b)
			if err == nil {
				err = (*evaluation.Batch)(&e).Check()
			}
			return evaluation.Batch(e), err
		}
	}
	var params []optim.Param
	if c.Model != nil {
		params = Params(c.Model)
	}
	run, err := trainer.New(config, params)
	if err != nil {
		return nil, err
	}
	listener.state, listener.control = (*TrainerState)(&run.State), (*Control)(&run.Control)
	return &Trainer[B]{acc: acc, run: run}, nil
}

// localLog returns the logger of the first rank of a machine, or nil on the others.
func (a *Accelerator) localLog() *slog.Logger {
	if !a.IsLocalMainProcess() {
		return nil
	}
	return a.base
}

// Train runs the loop: epochs, steps, logs, evaluations, checkpoints, and the requests of
// callbacks. It returns at the end of the run or at the first error, including that of ctx. With
// Arguments.Resume it continues from the last checkpoint and ends with the same weights as a run
// that was not interrupted. All ranks must call it.
func (t *Trainer[B]) Train(ctx context.Context) (TrainResult, error) {
	r, err := t.run.Train(ctx)
	return TrainResult(r), err
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
	r, err := t.run.TrainBatch(ctx, batch)
	return StepResult(r), err
}

// Evaluate evaluates the model on the evaluation data. All ranks must call it. It returns eval_loss
// (the mean over items), eval_perplexity unless it is left out, eval_accuracy if predictions are known, the metrics of
// ComputeMetrics, and the run time. Samples that were repeated to fill the last batch do not count
// (see [GatherForMetrics]); if ComputeLoss returns sums over Items, none are repeated.
func (t *Trainer[B]) Evaluate(ctx context.Context) (map[string]float64, error) {
	return t.run.Evaluate(ctx)
}

// Save writes a checkpoint with the trainer's state to OutputDir/checkpoint-STEP, and then removes
// old checkpoints beyond SaveTotalLimit. All ranks must call it.
func (t *Trainer[B]) Save(ctx context.Context) error { return t.run.Save(ctx) }

// Accelerator returns the trainer's accelerator.
func (t *Trainer[B]) Accelerator() *Accelerator { return t.acc }

// State returns the progress of the run. The trainer changes it; read it between steps.
func (t *Trainer[B]) State() *TrainerState { return (*TrainerState)(&t.run.State) }

// Control returns the requests that callbacks may change.
func (t *Trainer[B]) Control() *Control { return (*Control)(&t.run.Control) }

// Scheduler returns the prepared scheduler, or nil.
func (t *Trainer[B]) Scheduler() optim.Scheduler { return t.run.Scheduler }

// ScheduleSteps returns the number of steps that a schedule of this run counts: optimizer steps for
// Updates, the batches of all ranks for Batches.
func (t *Trainer[B]) ScheduleSteps() int { return t.run.Length.ScheduleSteps }

// GradientAccumulationSteps returns the number of batches in a window.
func (t *Trainer[B]) GradientAccumulationSteps() int { return t.run.Length.Window }
