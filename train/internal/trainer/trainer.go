// Package trainer implements the loop of train.Trainer. A [Trainer] runs epochs, steps, logging,
// evaluations and checkpoints on one rank, and resumes from a checkpoint. [Config] configures it,
// a [Moment] is an event that it reports, and [Control] holds the requests of callbacks.
//
// Package progress counts steps, rank runs backward passes, runstate saves the state of the rank,
// and evaluation computes metrics. The trainer calls them in order.
package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/evaluation"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/internal/runstate"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// Config configures a [Trainer]. train.TrainerConfig documents the fields of the same name.
type Config[B any] struct {
	Rank  *rank.Rank
	Store *runstate.Store

	Model          tensor.Module
	ComputeLoss    func(ctx context.Context, batch B) (*tensor.Tensor, error)
	ComputeLosses  func(ctx context.Context, batches []B) ([]*tensor.Tensor, error)
	Items          func(batch B) int
	Tokens         func(batch B) int
	BeforeWindow   func(ctx context.Context, batches []B) error
	Interrupted    func(step int) bool
	Optimizer      optim.Optimizer
	Scheduler      optim.Scheduler
	Train          *data.Loader[B]
	Evals          []EvalSet[B]
	EvaluateBatch  func(ctx context.Context, batch B) (evaluation.Batch, error)
	Gather         func(ctx context.Context, e evaluation.Batch) (evaluation.Batch, error)
	ComputeMetrics func(predicted, labels []int) map[string]float64
	// WithoutPerplexity omits eval_perplexity.
	WithoutPerplexity bool
	From              string
	Observer          Observer
	Meter             *Meter

	Goal      progress.Goal
	Schedule  Schedule
	Intervals progress.Intervals
	Best      progress.Best
	Files     Files
	MaxNorm   float64 // limit of the norm of the gradients; 0 for none

	Listener Listener
	// Log receives logged values. If it is nil, as on ranks that do not log, they are dropped.
	Log *slog.Logger
	// Warn receives messages about the run, on the main rank.
	Warn *slog.Logger
	// Track passes logged values to trackers.
	Track func(ctx context.Context, values track.Values, step int) error
}

// An EvalSet is data to evaluate on. The names of its metrics begin with eval_, or with
// eval_NAME_ if it has a Name.
type EvalSet[B any] struct {
	Name   string
	Loader *data.Loader[B]
}

// Schedule names a learning rate schedule. An empty Name means none.
type Schedule struct {
	Name    string
	Warmup  int
	Options map[string]any
}

// Files determines where checkpoints are and which of them is loaded.
type Files struct {
	Dir   string // of the checkpoints; if empty, none are saved
	Limit int    // checkpoints to keep; 0 keeps all
	// LoadBest loads the weights of the best checkpoint at the end.
	LoadBest bool
	// Resume continues from the latest checkpoint in Dir, if there is one. From, if not empty, is
	// the checkpoint to continue from.
	Resume bool
	From   string
	// OwnOptions uses the optimizer's rates, decay and momentum and the schedule of this run with
	// From, instead of those in the checkpoint.
	OwnOptions bool
}

// Observer measures the norms of a model: train.Observer.
type Observer interface {
	GradientNorm() float64
	WeightNorm() float64
}

// Listener is called for every event. Its state is saved in checkpoints.
type Listener interface {
	On(ctx context.Context, m *Moment) error
	SaveState() (map[string]json.RawMessage, error)
	LoadState(map[string]json.RawMessage) error
}

// Moment is train.Moment, without the state and the control.
type Moment struct {
	Event   string
	Batch   any
	Result  *StepResult
	Logs    track.Values
	Metrics map[string]float64
	Folder  string
}

// The events of a run. train.Event documents them.
const (
	TrainBegin = "train_begin"
	EpochBegin = "epoch_begin"
	StepStart  = "step_start"
	SubstepEnd = "substep_end"
	StepEnd    = "step_end"
	Log        = "log"
	Evaluated  = "evaluate"
	Saved      = "save"
	EpochEnd   = "epoch_end"
	TrainEnd   = "train_end"
)

// Control is train.Control: the requests of callbacks.
type Control struct {
	StopTraining bool `json:"should_training_stop"`
	StopEpoch    bool `json:"should_epoch_stop"`
	Save         bool `json:"should_save"`
	Evaluate     bool `json:"should_evaluate"`
	Log          bool `json:"should_log"`
}

// Trainer runs a training loop on one rank. It must be used only by the rank's goroutine.
type Trainer[B any] struct {
	c       Config[B]
	rank    *rank.Rank
	params  []optim.Param
	plateau bool
	losses  progress.Losses
	latest  StepResult
	metrics map[string]float64 // of the last evaluation
	resumed bool               // the next epoch continues that of the checkpoint
	// interrupted reports that Interrupted has ended the run, and abandoned that it did so in a window.
	interrupted, abandoned bool

	resized bool // the checkpoint may be at another place in the data than this run at its step
	// bestLost says why the weights at the end are not the best ones.
	bestLost error

	Length    *progress.Length
	State     progress.State
	Control   Control
	Optimizer optim.Optimizer // prepared
	Scheduler optim.Scheduler // prepared; may be nil
}

// New checks c and prepares its model, optimizer, loaders and scheduler. params are the model's
// trainable parameters.
func New[B any](c Config[B], params []optim.Param) (*Trainer[B], error) {
	t := &Trainer[B]{c: c, rank: c.Rank, params: params}
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := t.findsBest(); err != nil {
		return nil, err
	}
	c.Store.RestoreLoaders, c.Store.FirstLoaders = true, true // to continue with exactly the next batch
	if t.c.Observer == nil {
		t.c.Observer = norms{t.rank, params}
	}
	if err := t.measure(); err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	return t, t.count()
}

// check returns an error if c lacks a required field or has an invalid number.
func (c *Config[B]) check() error {
	for _, field := range []struct {
		name    string
		missing bool
	}{{"Model", c.Model == nil}, {"ComputeLoss", c.ComputeLoss == nil}, {"Optimizer", c.Optimizer == nil}, {"Train", c.Train == nil}} {
		if field.missing {
			return fmt.Errorf("train: trainer: TrainerConfig.%s is nil", field.name)
		}
	}
	named := map[string]bool{}
	for _, set := range c.Evals {
		switch {
		case set.Loader == nil:
			return fmt.Errorf("train: trainer: the evaluation data %q has no loader", set.Name)
		case named[set.Name]:
			return fmt.Errorf("train: trainer: two sets of evaluation data have the name %q", set.Name)
		}
		named[set.Name] = true
	}
	switch {
	case c.Items != nil && c.Goal.PerBatch:
		return errors.New("train: trainer: Items weights windows, which Batches does not read ahead")
	case !(c.MaxNorm >= 0):
		return fmt.Errorf("train: trainer: MaxGradNorm: got %v, want 0 or more", c.MaxNorm)
	case c.Schedule.Warmup < 0:
		return fmt.Errorf("train: trainer: WarmupSteps: got %d, want 0 or more", c.Schedule.Warmup)
	case c.Files.Limit < 0:
		return fmt.Errorf("train: trainer: SaveTotalLimit: got %d, want 0 or more", c.Files.Limit)
	}
	return nil
}

// findsBest checks that LoadBest can find a best checkpoint.
func (t *Trainer[B]) findsBest() error {
	f, v := &t.c.Files, &t.c.Intervals
	switch {
	case !f.LoadBest:
		return nil
	case f.Dir == "" || len(t.c.Evals) == 0:
		return errors.New("train: trainer: LoadBestAtEnd needs an OutputDir and evaluation data")
	case v.Save == 0 && v.Eval == 0 || v.Eval > 0 && v.Save > 0 && v.Save%v.Eval == 0:
		return nil
	}
	return fmt.Errorf("train: trainer: LoadBestAtEnd needs an evaluation at every checkpoint: got SaveSteps %d and EvalSteps %d, want both 0 or SaveSteps a multiple of EvalSteps", v.Save, v.Eval)
}

// measure computes the length of windows from the loader, which is not yet split between the
// ranks.
func (t *Trainer[B]) measure() error {
	d := progress.Data{BatchSize: t.c.Train.TotalBatchSize(), World: t.rank.Comm.Size()}
	if t.rank.Split.SplitBatches {
		d.BatchSize /= d.World
	}
	if n, err := t.c.Train.DatasetLen(); err == nil {
		d.Samples = n
	}
	g := t.c.Goal
	if g.Accumulation == 0 {
		g.Accumulation = t.rank.Rule.Steps
	}
	var err error
	if t.Length, err = progress.NewLength(g, d); err != nil {
		return err
	}
	t.State.TrainBatchSize = t.Length.BatchSize
	if g.PerBatch {
		return nil
	}
	return t.rank.SetSteps(t.Length.Window)
}

// prepare splits the data and gives all ranks the same weights.
func (t *Trainer[B]) prepare() error {
	t.Optimizer, t.Scheduler = t.c.Optimizer, t.c.Scheduler
	err := t.rank.Prepare(t.c.Model, &t.Optimizer, t.c.Train)
	for _, set := range t.c.Evals {
		if err == nil {
			err = t.prepareEval(set.Loader)
		}
	}
	return err
}

func (t *Trainer[B]) prepareEval(l *data.Loader[B]) error {
	if !t.evaluatesSums() {
		return t.rank.Prepare(l)
	}
	o := t.rank.Split
	o.UnevenBatches, o.Dispatch = true, data.DispatchNever
	if l.Streams() { // a stream can be split only with padding: see sumOwn
		o.Comm, o.SplitBatches = nil, false
	}
	if err := t.rank.PrepareLoader(l, o); err != nil {
		return fmt.Errorf("train: trainer: the evaluation data: %w", errtext.Below("train", err))
	}
	return nil
}

// count computes the number of steps and creates the schedule.
func (t *Trainer[B]) count() error {
	n, err := t.c.Train.Len()
	if err := t.Length.Count(n, err, t.c.Schedule.Name != ""); err != nil {
		return err
	}
	s, v := &t.State, &t.c.Intervals
	s.MaxSteps, s.NumTrainEpochs = t.Length.MaxSteps, t.Length.Epochs
	s.LoggingSteps, s.EvalSteps, s.SaveSteps = v.Log, v.Eval, v.Save
	s.IsLocalProcessZero, s.IsWorldProcessZero = t.rank.IsMain(), t.rank.IsMain()
	return t.schedule()
}

// schedule creates the schedule and prepares it.
func (t *Trainer[B]) schedule() error {
	if sched := &t.c.Schedule; sched.Name != "" {
		if t.Scheduler != nil {
			return errors.New("train: trainer: both a scheduler and a schedule by name are given")
		}
		made, err := optim.NewScheduler(t.c.Optimizer, optim.ScheduleSpec{Name: sched.Name, WarmupSteps: &sched.Warmup,
			TrainingSteps: &t.Length.ScheduleSteps, Options: sched.Options})
		if err != nil {
			return fmt.Errorf("train: trainer: %w", err)
		}
		t.Scheduler = made
	}
	if t.Scheduler == nil {
		return nil
	}
	_, t.plateau = t.Scheduler.(*optim.Plateau)
	if err := t.rank.Prepare(&t.Scheduler); err != nil {
		return err
	}
	if p, ok := t.Scheduler.(*optim.PreparedScheduler); ok && !t.Length.PerBatch {
		p.World = 1 // a schedule of updates moves once with each
	}
	return nil
}

// norms implements Observer for parameters. All ranks must call GradientNorm.
type norms struct {
	rank   *rank.Rank
	params []optim.Param
}

func (n norms) GradientNorm() float64 {
	norm, err := n.rank.Norm(n.params, 2)
	if err != nil {
		return math.NaN() // the step that follows returns the error
	}
	return norm
}

func (n norms) WeightNorm() float64 { return optim.WeightNorm(n.params, 2) }

// setTraining tells the model whether it is trained or evaluated.
func (t *Trainer[B]) setTraining(on bool) {
	if m, ok := t.c.Model.(interface{ SetTraining(bool) }); ok {
		m.SetTraining(on)
	}
}

// trigger calls the listener.
func (t *Trainer[B]) trigger(ctx context.Context, m Moment) error { return t.c.Listener.On(ctx, &m) }
