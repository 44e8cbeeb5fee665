package finetune

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/track"
)

// Run fine-tunes a model on data files and writes the result to o.Output, as train run does. The
// model is a folder with config.json, tokenizer.json and safetensors, or a GGUF file. The files
// are JSONL, CSV or Parquet of texts, prompts, messages or comparisons.
//
// Run resumes from the last checkpoint in o.Output unless o.Resume says otherwise. If a launcher
// has set its variables (see train.FromEnvironment), this process is one rank of several; otherwise
// Run starts o.NumProcesses ranks. It returns a [UsageError] for invalid options. If ctx ends, Run
// returns its error and writes no new checkpoint; o.Interrupt ends a run with a checkpoint. Several
// runs may share a process if their outputs differ.
func Run(ctx context.Context, model string, files []string, o Options) (Result, error) {
	j, err := newJob(model, files, o)
	if err != nil {
		return Result{}, err
	}
	defer j.closeData()
	if j.process {
		err = j.runProcess(ctx)
	} else {
		err = j.runHere(ctx)
	}
	if errors.Is(err, errInterrupted) {
		j.result.Stopped, err = true, nil
	}
	return j.result, err
}

// Result describes a finished run.
type Result struct {
	Output  string   `json:"output"`
	Steps   int      `json:"steps"`
	Seconds float64  `json:"seconds"`
	Loss    *float64 `json:"train_loss"` // over this process's steps; nil if there were none
	// Metrics are those of the last evaluation; with LoadBest, those of the evaluation whose weights are written.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// BestLost, with LoadBest, says that the best checkpoint could not be read, why, and which weights
	// were written instead. It is empty if they are the best ones.
	BestLost string `json:"best_lost,omitempty"`
	// Diverged reports that the loss of the last step or a weight after it is not finite, so that the
	// weights are unusable.
	Diverged bool `json:"diverged,omitempty"`
	Stopped  bool `json:"stopped"` // by Options.Interrupt
	// DiskBytes is the number of bytes that this process read of weights, gradients and optimizer
	// state that do not fit into MaxMemory.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
	// Rank is this process's rank. The other fields, apart from Stopped, are set on rank 0 only.
	Rank int `json:"-"`
}

var errInterrupted = errors.New("interrupted")

// job is a run with checked options.
type job struct {
	*Options
	model   string // folder or GGUF file
	files   []string
	ranks   int
	here    int   // ranks that share the memory and processors of this process or machine
	process bool  // this process is one of the ranks
	threads int   // per rank
	memory  int64 // bytes of --max-memory, 0 for no limit
	log     *slog.Logger
	vocab   int // the model's vocabulary size, or 0 if unknown
	data    *texts
	useless []string       // files without anything to learn, and why
	words   string         // cached result of tokenizerDigest
	caches  []func() error // close files of samples
	rewards []string       // names of grpo's rewards
	fresh   []byte         // train_run.json of a new run; nil if the run resumes
	changed string         // the settings that differ from those of the checkpoint in --resume
	result  Result         // on rank 0
	space   func(dir string) (all, free int64, err error)
}

func newJob(model string, files []string, o Options) (*job, error) {
	j := &job{Options: &o, model: model, files: files, threads: o.Threads, log: o.Log, space: hostmem.DiskSpace}
	if j.log == nil {
		j.log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.BaseModel = cmp.Or(o.BaseModel, model)
	optimizer := o.Optimizer
	if err := j.check(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(model); errors.Is(err, fs.ErrNotExist) {
		return nil, misusef("there is no model %s: want a folder with config.json and *.safetensors, or a .gguf file", model)
	}
	if err := j.findData(); err != nil {
		return nil, err
	}
	j.sayPaging(optimizer)
	if err := j.checkGGUF(model); err != nil {
		return nil, err
	}
	var err error
	if j.memory, err = j.limit(); err != nil {
		return nil, err
	}
	if err := j.findWorld(); err != nil {
		return nil, err
	}
	if j.threads == 0 {
		j.threads = max(1, runtime.GOMAXPROCS(0)/j.here)
	}
	o.MixedPrecision = cmp.Or(o.MixedPrecision, "no")
	return j, nil
}

// runHere runs all ranks in this process.
func (j *job) runHere(ctx context.Context) error {
	unlock, err := j.open()
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.read(); err != nil {
		return err
	}
	if err := j.claim(); err != nil {
		return err
	}
	j.start(ctx, j.ranks*j.threads)
	if j.ranks == 1 {
		return j.rank(ctx, nil)
	}
	return train.Launch(ctx, j.ranks, j.rank)
}

// start chooses the fastest way to read weights on this processor, as serve does, and reports that
// training starts. The first program on a machine measures that in about 30 ms; later ones read the
// file in the user's cache folder. Results do not depend on it.
func (j *job) start(ctx context.Context, threads int) {
	(&tune.Store{Folder: tune.DefaultFolder()}).Ensure(ctx, tune.Options{Threads: threads})
	if j.Started != nil {
		j.Started()
	}
}

// interrupted reports whether Interrupt is closed.
func (j *job) interrupted() bool {
	select {
	case <-j.Interrupt:
		return true
	default:
		return false
	}
}

// Check returns a [UsageError] if options or files are invalid or do not fit together. It reads no
// model and no data. Run calls it first.
func (o Options) Check(files []string) error { return (&job{Options: &o, files: files}).check() }

// check validates the options.
func (c *job) check() error {
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.adopt(); err != nil {
		return err
	}
	if len(c.files) == 0 {
		return misusef("no data: use --data")
	}
	if c.Output == "" {
		return misusef("no folder for the result: use --output")
	}
	for _, n := range []struct {
		name  string
		value float64
		least float64
	}{{"--batch", float64(c.Batch), 1}, {"--sequence", float64(c.Sequence), 2}, {"--gradient-accumulation-steps", float64(c.GradientAccumulationSteps), 1},
		{"--num-processes", float64(c.NumProcesses), 0}, {"--threads", float64(c.Threads), 0}, {"--max-steps", float64(c.MaxSteps), 0},
		{"--epochs", c.Epochs, 0}, {"--max-grad-norm", c.MaxGradNorm, 0}, {"--learning-rate", c.LearningRate, 0}, {"--warmup-steps", c.WarmupSteps, 0},
		{"--warmup-ratio", c.WarmupRatio, 0}, {"--weight-decay", c.WeightDecay, 0}, {"--save-steps", float64(c.SaveSteps), -1}, {"--eval-steps", float64(c.EvalSteps), -1},
		{"--save-total-limit", float64(c.SaveTotalLimit), 0}, {"--log-steps", float64(c.LogSteps), -1}} {
		if !(n.value >= n.least) {
			return misusef("got %s %v, want at least %v", n.name, n.value, n.least)
		}
	}
	if c.WarmupRatio > 1 {
		return misusef("got --warmup-ratio %v, want at most 1", c.WarmupRatio)
	}
	for _, name := range c.LogWith {
		if names := append(track.Names(), "all"); !slices.Contains(names, name) {
			return misusef("got --log-with %q, want some of %s", name, strings.Join(names, ", "))
		}
	}
	if c.Epochs == 0 && c.MaxSteps == 0 {
		return misusef("--epochs is 0: use --max-steps")
	}
	if err := c.checkData(); err != nil {
		return err
	}
	if err := c.checkTune(); err != nil {
		return err
	}
	if err := c.checkMethod(); err != nil {
		return err
	}
	if err := c.checkLoop(); err != nil {
		return err
	}
	if err := c.checkMetric(); err != nil {
		return err
	}
	return c.checkSchedule()
}

// scheduleOptions returns the options of --lr-scheduler-kwargs, which checkSchedule has validated.
func (c *job) scheduleOptions() (options map[string]any) {
	_ = json.Unmarshal([]byte(c.LRSchedulerKwargs), &options)
	return options
}

// checkSchedule rejects unknown schedules and options, before the data is read.
func (c *job) checkSchedule() error {
	var options map[string]any
	if c.LRSchedulerKwargs != "" {
		if err := json.Unmarshal([]byte(c.LRSchedulerKwargs), &options); err != nil {
			return misusef("--lr-scheduler-kwargs: got %s (%w), want a JSON object such as {\"num_cycles\": 2}", c.LRSchedulerKwargs, err)
		}
	}
	adam, err := optim.NewAdamW(nil, optim.AdamOptions{LR: 1})
	if err != nil {
		return err
	}
	warmup, steps := 0, 1
	if _, err := optim.NewScheduler(adam, optim.ScheduleSpec{Name: c.LRScheduler, WarmupSteps: &warmup, TrainingSteps: &steps, Options: options}); err != nil {
		flags := "--lr-scheduler"
		if c.LRSchedulerKwargs != "" {
			flags += ", --lr-scheduler-kwargs"
		}
		return misusef("%s: %w", flags, err)
	}
	return nil
}
