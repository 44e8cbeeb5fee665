package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// StepUnit is the unit in which a [Trainer] counts steps.
type StepUnit int

const (
	// Updates are steps of the optimizer, as transformers' Trainer counts them. Accumulation
	// windows end with the epoch and are divided by their real length. The schedule moves once per
	// step. This is the default.
	Updates StepUnit = iota
	// Batches are micro steps, one per batch, as [Trainer.TrainAStep] counts them. Windows continue
	// across epochs, and the optimizer does not step for a last window that is not full. The
	// schedule counts the batches of all ranks and moves with every batch.
	Batches
)

// TrainingArguments say how long a [Trainer] trains, and when it logs, evaluates and saves. For the
// intervals (…Steps), 0 is the end of each epoch, and a negative number is never.
type TrainingArguments struct {
	// OutputDir is the folder of the checkpoints, OutputDir/checkpoint-STEP. If empty, none is
	// saved.
	OutputDir string
	Unit      StepUnit
	// Strategy says which of Epochs (the default) and MaxSteps gives the length of the run.
	Strategy optim.Strategy
	// Epochs is how often the run trains on the data. 0 means 3. With Updates it may have a
	// fraction.
	Epochs float64
	// MaxSteps is the number of steps of each rank. If it is positive, it replaces Epochs.
	MaxSteps int
	// GradientAccumulationSteps is the number of batches in a window. 0 means the accelerator's
	// number. With Batches, Backward divides losses by the accelerator's number, not by this one.
	GradientAccumulationSteps int
	// RealBatchSize is the number of samples of an optimizer step over all ranks. It sets the
	// number of batches in a window, and must be divisible by the batch of all ranks together.
	RealBatchSize int
	// MaxGradNorm limits the norm of all gradients. 0 does not.
	MaxGradNorm float64
	// Schedule makes a schedule by name ([optim.NewScheduler]) with the length of the run. If
	// empty, the trainer uses TrainerConfig.Scheduler.
	Schedule        string
	WarmupSteps     int
	ScheduleOptions map[string]any

	LogSteps, EvalSteps, SaveSteps int
	// LogFirstStep logs the first step too.
	LogFirstStep bool
	// SaveTotalLimit is how many checkpoints are kept. 0 keeps all. The best one is always kept.
	SaveTotalLimit int
	// MetricForBest is the evaluation metric that ranks checkpoints. Empty means "loss", which is
	// the same as "eval_loss".
	MetricForBest string
	// GreaterIsBetter says that a higher MetricForBest is better.
	GreaterIsBetter bool
	// LoadBestAtEnd loads the weights of the best checkpoint at the end. Every evaluation needs a
	// checkpoint: save at the end of each epoch like the evaluations, or make SaveSteps a multiple
	// of EvalSteps.
	LoadBestAtEnd bool
	// Resume continues from the checkpoint of OutputDir with the highest number, if there is one.
	// ResumeFrom continues from the checkpoint in that folder.
	Resume     bool
	ResumeFrom string
}

// TrainerConfig is what a [Trainer] works with. Model, ComputeLoss, Optimizer and Train are
// required.
type TrainerConfig[B any] struct {
	// Accelerator is this rank's. Nil makes one for a world of one. The trainer prepares the
	// following fields; they must not be prepared yet.
	Accelerator *Accelerator
	// Model may have a method SetTraining(bool). The trainer calls it before training and before
	// evaluating.
	Model Module
	// ComputeLoss is the forward pass. It returns the mean loss of a batch or, if Items is set, the
	// sum over the batch's items.
	ComputeLoss func(ctx context.Context, batch B) (*tensor.Tensor, error)
	// Items counts the items that a batch's loss is summed over, such as tokens with labels. A step
	// then uses the mean over all items of the window on all ranks. It is for Updates only.
	Items func(batch B) int
	// Optimizer steps the model's parameters.
	Optimizer optim.Optimizer
	// Scheduler changes the optimizer's learning rates. Nil keeps them, unless
	// TrainingArguments.Schedule names a schedule.
	Scheduler optim.Scheduler
	Train     *data.Loader[B]
	// Eval is the data of [Trainer.Evaluate]. It may be nil.
	Eval *data.Loader[B]
	// EvaluateBatch evaluates each sample of a batch. If nil, ComputeLoss gives one loss for all
	// samples of the batch.
	EvaluateBatch func(ctx context.Context, batch B) (Evaluation, error)
	// ComputeMetrics computes further metrics from the predictions of all samples. If nil, the
	// trainer computes the accuracy.
	ComputeMetrics func(predicted, labels []int) map[string]float64
	// Callbacks are called for every event, in order.
	Callbacks []Callback
	// From is the folder of the model that is trained. Its config and the files of its tokenizer
	// are copied into every checkpoint, so that each is a model folder. Empty copies nothing.
	From string
	// Observer measures norms. Nil measures the trainable parameters of Model.
	Observer  Observer
	Arguments TrainingArguments
}

// Observer measures the 2-norms of all gradients and of all weights of a model.
type Observer interface {
	GradientNorm() float64
	WeightNorm() float64
}

// Trainer runs a training loop on one rank. It belongs to the goroutine of its rank. [NewTrainer]
// makes one.
type Trainer[B any] struct {
	c        TrainerConfig[B]
	args     TrainingArguments
	acc      *Accelerator
	params   []optim.Param
	opt      optim.Optimizer // prepared
	sched    optim.Scheduler // for Batches prepared; may be nil
	plateau  bool
	observer Observer
	window   int // batches of a window
	perEpoch int // steps of an epoch; 0 if that is not known
	batches  int // of an epoch on this rank; 0 if that is not known
	counts   optim.StepCounts
	state    TrainerState
	control  Control
	sums     sums
	latest   StepResult
	latestEv map[string]float64
	resumed  bool
}

// NewTrainer prepares c's model, optimizer, loaders and, for [Batches], scheduler. It fails if a
// required field is missing or RealBatchSize is not divisible ([optim.ErrRealBatch]).
func NewTrainer[B any](c TrainerConfig[B]) (*Trainer[B], error) {
	t := &Trainer[B]{c: c, args: c.Arguments, acc: c.Accelerator, observer: c.Observer}
	switch {
	case c.Model == nil || c.ComputeLoss == nil || c.Optimizer == nil || c.Train == nil:
		return nil, errors.New("train: trainer: one of Model, ComputeLoss, Optimizer and Train is missing")
	case c.Items != nil && t.args.Unit == Batches:
		return nil, errors.New("train: trainer: Items weights windows, which Batches does not read ahead")
	}
	if err := t.args.findsBest(c.Eval != nil); err != nil {
		return nil, err
	}
	if t.acc == nil {
		var err error
		if t.acc, err = New(Config{GradientAccumulationSteps: t.args.GradientAccumulationSteps}); err != nil {
			return nil, err
		}
	}
	if t.acc.project.AutomaticCheckpointNaming {
		return nil, errors.New("train: trainer: checkpoints are named by their step, not automatically")
	}
	t.acc.cfg.DataLoader.UseStatefulDataLoader = true // to go on with the very next batch
	t.params = Params(c.Model)
	if t.observer == nil {
		t.observer = norms(t.params)
	}
	if err := t.count(); err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	return t, t.length()
}

// findsBest checks that LoadBestAtEnd can find a best checkpoint.
func (a *TrainingArguments) findsBest(evaluates bool) error {
	switch {
	case !a.LoadBestAtEnd:
		return nil
	case a.OutputDir == "" || !evaluates:
		return errors.New("train: trainer: LoadBestAtEnd needs an OutputDir and evaluation data")
	case a.SaveSteps == 0 && a.EvalSteps == 0 || a.EvalSteps > 0 && a.SaveSteps > 0 && a.SaveSteps%a.EvalSteps == 0:
		return nil
	}
	return fmt.Errorf("train: trainer: LoadBestAtEnd needs a checkpoint at every evaluation: got SaveSteps %d and EvalSteps %d, want both 0 or SaveSteps a multiple of EvalSteps", a.SaveSteps, a.EvalSteps)
}

// count computes the length of windows from the loader, which is not split between the ranks yet.
func (t *Trainer[B]) count() error {
	a := &t.args
	if a.Strategy == "" {
		a.Strategy = optim.ByEpochs
		if a.MaxSteps > 0 && a.Epochs == 0 {
			a.Strategy = optim.BySteps
		}
	}
	if a.Epochs == 0 {
		a.Epochs = 3
	}
	if a.Strategy == optim.BySteps && a.MaxSteps < 1 || a.Epochs < 0 || math.IsNaN(a.Epochs) {
		return fmt.Errorf("train: trainer: %v epochs, %d steps by the strategy %q", a.Epochs, a.MaxSteps, a.Strategy)
	}
	run := optim.RunLength{BatchSize: t.c.Train.TotalBatchSize(), World: t.acc.NumProcesses(), Accumulation: a.GradientAccumulationSteps,
		RealBatch: a.RealBatchSize, Strategy: a.Strategy, Epochs: a.Epochs, Steps: a.MaxSteps}
	if t.acc.cfg.DataLoader.SplitBatches {
		run.BatchSize /= run.World
	}
	if run.Accumulation == 0 {
		run.Accumulation = t.acc.GradientAccumulationSteps()
	}
	if run.BatchSize == 0 { // a batch sampler with batches of its own
		if a.RealBatchSize > 0 {
			return errors.New("train: trainer: a real batch size needs batches of one size")
		}
		run.BatchSize = 1
	}
	if n, err := t.c.Train.DatasetLen(); err == nil {
		run.Samples = n
	}
	var err error
	if t.counts, err = optim.Count(run); err != nil {
		return fmt.Errorf("train: trainer: %w", err)
	}
	t.window = t.counts.Accumulation
	t.state.TrainBatchSize = run.BatchSize
	if a.Unit == Updates {
		return t.acc.SetGradientAccumulationSteps(t.window)
	}
	return nil
}

func (t *Trainer[B]) prepare() error {
	t.opt, t.sched = t.c.Optimizer, t.c.Scheduler
	err := t.acc.Prepare(t.c.Model, &t.opt, t.c.Train)
	if err != nil || t.c.Eval == nil {
		return err
	}
	if !t.evaluatesSums() {
		return t.acc.Prepare(t.c.Eval)
	}
	o := t.acc.dealing()
	o.UnevenBatches, o.Dispatch = true, data.DispatchNever
	if t.c.Eval.Streams() { // which are dealt with padding only: see share
		o.Comm, o.SplitBatches = nil, false
	}
	if err := t.acc.deal(t.c.Eval, o); err != nil {
		return fmt.Errorf("train: trainer: the evaluation data: %w", err)
	}
	return nil
}

// length computes the number of steps and makes the schedule.
func (t *Trainer[B]) length() error {
	a, s := &t.args, &t.state
	n, err := t.c.Train.Len()
	known := err == nil
	if !known && a.Strategy == optim.ByEpochs && (a.Schedule != "" || a.Unit == Updates && a.Epochs != math.Trunc(a.Epochs)) {
		return fmt.Errorf("train: trainer: counting the steps of %v epochs: %w", a.Epochs, err)
	}
	if known {
		if t.batches, t.perEpoch = n, n; a.Unit == Updates {
			t.perEpoch = optim.TrainerSteps(n, t.window, 1, 0)
		}
	}
	schedule := t.counts.ScheduleSteps
	switch {
	case a.Strategy == optim.BySteps || a.MaxSteps > 0:
		s.MaxSteps = a.MaxSteps
		s.NumTrainEpochs = math.MaxInt32
		if t.perEpoch > 0 {
			s.NumTrainEpochs = (s.MaxSteps + t.perEpoch - 1) / t.perEpoch
		}
	case a.Unit == Updates && known:
		s.MaxSteps = optim.TrainerSteps(n, t.window, a.Epochs, 0)
		s.NumTrainEpochs = int(math.Ceil(a.Epochs))
	default:
		s.NumTrainEpochs = int(math.Ceil(a.Epochs))
		s.MaxSteps = int(math.Ceil(a.Epochs * float64(n)))
	}
	if a.Unit == Updates {
		schedule = s.MaxSteps
	}
	s.LoggingSteps, s.EvalSteps, s.SaveSteps = a.LogSteps, a.EvalSteps, a.SaveSteps
	s.IsLocalProcessZero, s.IsWorldProcessZero = t.acc.IsLocalMainProcess(), t.acc.IsMainProcess()
	return t.schedule(schedule)
}

func (t *Trainer[B]) schedule(steps int) error {
	a := &t.args
	if a.Schedule != "" {
		if t.c.Scheduler != nil {
			return errors.New("train: trainer: both a scheduler and a schedule by name are given")
		}
		sched, err := optim.NewScheduler(t.c.Optimizer, optim.ScheduleSpec{Name: a.Schedule, WarmupSteps: &a.WarmupSteps, TrainingSteps: &steps, Options: a.ScheduleOptions})
		if err != nil {
			return fmt.Errorf("train: trainer: %w", err)
		}
		t.sched = sched
	}
	if t.sched == nil {
		return nil
	}
	_, t.plateau = t.sched.(*optim.Plateau)
	if err := t.acc.Prepare(&t.sched); err != nil {
		return err
	}
	if p, ok := t.sched.(*optim.PreparedScheduler); ok && a.Unit == Updates {
		p.World = 1 // a schedule of updates moves once with each
	}
	return nil
}

// Accelerator returns the trainer's accelerator.
func (t *Trainer[B]) Accelerator() *Accelerator { return t.acc }

// State returns the progress of the run. The trainer changes it; read it between steps.
func (t *Trainer[B]) State() *TrainerState { return &t.state }

// Control returns the requests that callbacks may change.
func (t *Trainer[B]) Control() *Control { return &t.control }

// ScheduleSteps returns the number of steps that a schedule of this run counts: optimizer steps for
// Updates, the batches of all ranks for Batches.
func (t *Trainer[B]) ScheduleSteps() int {
	if t.args.Unit == Updates {
		return t.state.MaxSteps
	}
	return t.counts.ScheduleSteps
}

// GradientAccumulationSteps returns the number of batches in a window.
func (t *Trainer[B]) GradientAccumulationSteps() int { return t.window }

// norms is the Observer of parameters.
type norms []optim.Param

func (n norms) GradientNorm() float64 { return optim.Norm(n, 2) }

func (n norms) WeightNorm() float64 { return optim.WeightNorm(n, 2) }

// setTraining tells the model whether it is trained or evaluated.
func (t *Trainer[B]) setTraining(on bool) {
	if m, ok := t.c.Model.(interface{ SetTraining(bool) }); ok {
		m.SetTraining(on)
	}
}

// Scheduler returns the prepared scheduler, or nil.
func (t *Trainer[B]) Scheduler() optim.Scheduler { return t.sched }
