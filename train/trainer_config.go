package train

import (
	"context"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/internal/trainer"
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
	// MaxGradNorm limits the norm of all gradients. 0 means no limit.
	MaxGradNorm float64
	// Schedule makes a schedule by name ([optim.NewScheduler]) with the length of the run. If
	// empty, the trainer uses TrainerConfig.Scheduler.
	Schedule        string
	WarmupSteps     int
	ScheduleOptions map[string]any

	// EvalSteps and SaveSteps count the last step, too.
	LogSteps, EvalSteps, SaveSteps int
	// LogFirstStep logs the first step too.
	LogFirstStep bool
	// SaveTotalLimit is the maximum number of checkpoints kept. 0 keeps all. The best one is always
	// kept.
	SaveTotalLimit int
	// MetricForBest is the evaluation metric that ranks checkpoints. Empty means "loss", which is
	// the same as "eval_loss".
	MetricForBest string
	// GreaterIsBetter says that a higher MetricForBest is better.
	GreaterIsBetter bool
	// LoadBestAtEnd loads the weights of the best checkpoint at the end. Every checkpoint needs an
	// evaluation: save at the end of each epoch like the evaluations, or make SaveSteps a multiple
	// of EvalSteps. An evaluation between two checkpoints that is better than both has no weights to
	// load; a warning says so.
	LoadBestAtEnd bool
	// Resume continues from the readable checkpoint of OutputDir with the highest number, if there
	// is one. A warning names unreadable ones. ResumeFrom continues from the checkpoint in that
	// folder.
	Resume     bool
	ResumeFrom string
	// OwnOptions uses the rates, weight decay and momentum of Optimizer and the schedule of this
	// run with ResumeFrom. Otherwise those in the checkpoint replace them, as in transformers.
	OwnOptions bool
}

// TrainerConfig configures a [Trainer]. Model, ComputeLoss, Optimizer and Train are
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
	// ComputeLosses, if not nil, replaces ComputeLoss in training. It receives the remaining
	// batches of a window and returns the losses of the first one, or of several of them; each is
	// as ComputeLoss returns it. With [model.Model.Losses] all batches of a step share one sweep
	// over weights that stream from disk. Strategies that keep no gradients between batches, such
	// as stage 2 of ZeRO, pass one batch at a time. It is for Updates only.
	ComputeLosses func(ctx context.Context, batches []B) ([]*tensor.Tensor, error)
	// Items counts the items that a batch's loss is summed over, such as tokens with labels. A step
	// then uses the mean over all items of the window on all ranks. It is for Updates only.
	Items func(batch B) int
	// Tokens counts the tokens of a batch without padding. If it is set, the trainer logs num_tokens, the
	// tokens of all ranks since the start of the run, which checkpoints keep in NumInputTokensSeen. It is for Updates only.
	Tokens func(batch B) int
	// BeforeWindow is called with the batches of a window, after the previous step and before
	// Items. Methods that generate their training data complete the batches here. At the end of an
	// epoch a rank may have no batches. All ranks call it equally often. It may be nil, and is for
	// Updates only.
	BeforeWindow func(ctx context.Context, batches []B) error
	// Interrupted is called with the number of finished steps after each step of the optimizer and,
	// with Updates, between the batches of a step. If it returns true on any rank, the run ends on all ranks. Unless
	// SaveSteps is negative, it first writes a checkpoint of the last finished step. The gradients of an
	// unfinished step are dropped; a run that resumes computes it with the same batches and random
	// numbers. It may be nil.
	Interrupted func(step int) bool
	// Optimizer steps the model's parameters.
	Optimizer optim.Optimizer
	// Scheduler changes the optimizer's learning rates. Nil keeps them, unless
	// TrainingArguments.Schedule names a schedule.
	Scheduler optim.Scheduler
	Train     *data.Loader[B]
	// Eval is the data of [Trainer.Evaluate]. It may be nil.
	Eval *data.Loader[B]
	// Evals are further data of [Trainer.Evaluate], whose metrics have the set's name: eval_NAME_loss.
	Evals []EvalSet[B]
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
	// WithoutPerplexity omits eval_perplexity. Use it for losses that are not cross-entropies.
	WithoutPerplexity bool
	// Meter has further values measured in passes, which are logged with the loss. It may be nil.
	Meter *Meter
	// Observer measures norms. Nil measures the trainable parameters of Model.
	Observer  Observer
	Arguments TrainingArguments
}

// EvalSet is data to evaluate on under a name.
type EvalSet[B any] struct {
	Name   string
	Loader *data.Loader[B]
}

// evals returns all data to evaluate on.
func (c *TrainerConfig[B]) evals() (all []trainer.EvalSet[B]) {
	if c.Eval != nil {
		all = append(all, trainer.EvalSet[B]{Loader: c.Eval})
	}
	for _, s := range c.Evals {
		all = append(all, trainer.EvalSet[B](s))
	}
	return all
}

// Observer measures the 2-norms of all gradients and of all weights of a model.
type Observer interface {
	GradientNorm() float64
	WeightNorm() float64
}

// goal returns how long to train.
func (a *TrainingArguments) goal() progress.Goal {
	return progress.Goal{Strategy: a.Strategy, Epochs: a.Epochs, MaxSteps: a.MaxSteps, Accumulation: a.GradientAccumulationSteps,
		RealBatch: a.RealBatchSize, PerBatch: a.Unit == Batches}
}

// files returns where checkpoints are saved and loaded.
func (a *TrainingArguments) files() trainer.Files {
	return trainer.Files{Dir: a.OutputDir, Limit: a.SaveTotalLimit, LoadBest: a.LoadBestAtEnd, Resume: a.Resume, From: a.ResumeFrom, OwnOptions: a.OwnOptions}
}
