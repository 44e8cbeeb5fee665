package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/filelock"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
)

// modelFlags name the model. A positional M means the same as --model.
type modelFlags struct {
	Model string `help:"Train this model: a folder, a cached ORG/NAME[@REVISION], or with --lora a GGUF file." placeholder:"M"`
	M     string `arg:"" optional:"" help:"Same as --model."`
}

// folder returns where the model's files are.
func (f *modelFlags) folder() (string, error) {
	name := f.Model
	switch {
	case name != "" && f.M != "" && name != f.M:
		return "", cmdline.Misusef("the model is given twice: %s and --model %s", f.M, name)
	case name == "" && f.M == "":
		return "", cmdline.Misusef("no model: use --model")
	case name == "":
		name = f.M
	}
	path, err := hub.Local(hub.FromPage(name))
	if err != nil {
		return "", cmdline.Misuse(err)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() && isGGUF(path) {
		return path, nil
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return "", cmdline.Misusef("--model %s: got a file, want a folder with config.json, tokenizer.json and the weights, or a GGUF file", name)
	}
	return loader.Folder(path)
}

// runCmd is train run.
type runCmd struct {
	modelFlags
	methodFlags
	dataFlags
	optimFlags
	loopFlags
	tuneFlags
	Output string `help:"Write checkpoints and the trained model to this folder." required:"" placeholder:"DIR"`
	Dtype  string `help:"Write weights in this dtype; auto is the dtype of the model." enum:"auto,float32,bfloat16,float16" default:"auto"`

	MixedPrecision string `help:"Set the precision of products: no (float32), bf16, or fp16 with a scaled loss." enum:"no,bf16,fp16," default:""`
	Recompute      string `help:"Recompute activations to save memory: on, off, or auto above 2 GiB per batch." enum:"auto,on,off" default:"auto"`
	NumProcesses   int    `help:"Train with this many ranks in this process, each on its own batches; 0 is 1." default:"0"`
	Plugin         string `help:"Share the work between ranks: ddp, zero1, zero2 or gemini." enum:"ddp,zero1,zero2,gemini" default:"ddp"`
	Threads        int    `help:"Set the compute threads; 0 uses all processors." default:"0"`
	MaxMemory      string `help:"Limit memory by device, with --lora: cpu=30GiB; other weights stream." placeholder:"DEVICE=SIZE,…"`

	SaveSteps      int      `help:"Save every N steps; 0 at the end of each epoch, -1 never." default:"0"`
	SaveTotalLimit int      `help:"Keep this many checkpoints; 0 keeps all." default:"2"`
	EvalSteps      int      `help:"Evaluate every N steps; 0 at the end of each epoch, -1 never." default:"0"`
	LogSteps       int      `help:"Log every N steps; 0 at the end of each epoch." default:"10"`
	LogWith        []string `help:"Write metrics: tensorboard, jsonl, csv, curve (a PNG of the loss), or all." placeholder:"NAME,…"`
	LoggingDir     string   `help:"Write metrics to this folder instead of --output." placeholder:"DIR"`
	JSON           bool     `name:"json" help:"Print one JSON object at the end."`
	Resume         string   `help:"Resume from the last checkpoint in --output (auto), from DIR, or never." default:"auto" placeholder:"auto|never|DIR"`
}

// Run trains and writes a folder that serve opens.
func (c *runCmd) Run(ctx context.Context, out cmdline.Output, diag cmdline.Diagnostics) error {
	keepLittle()
	j, err := c.job(diag)
	if err != nil {
		return err
	}
	if j.process {
		return j.runProcess(ctx, out)
	}
	unlock, err := j.open()
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.read(); err != nil {
		return err
	}
	tuneReads(ctx, "", j.ranks*j.threads)
	stop := watch(&j.stop, false)
	defer stop()
	if j.ranks == 1 {
		err = j.rank(ctx, nil)
	} else {
		err = train.Launch(ctx, j.ranks, j.rank)
	}
	return j.end(err, out)
}

// open locks and prepares the output folder.
func (j *job) open() (unlock func(), err error) {
	if unlock, err = j.lock(); err != nil {
		return nil, err
	}
	if err := j.begin(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// end reports on out how the ranks ended, if it is not nil, and returns the command's error.
func (j *job) end(err error, out io.Writer) error {
	interrupted := errors.Is(err, errInterrupted)
	if err != nil && !interrupted {
		return err
	}
	j.result.Stopped = interrupted
	if out != nil {
		if err := j.report(out); err != nil {
			return err
		}
	}
	if !interrupted {
		return nil
	}
	return cmdline.Stopped(syscall.Signal(j.stop.Load()))
}

// runResult is what train run --json prints.
type runResult struct {
	Output  string             `json:"output"`
	Steps   int                `json:"steps"`
	Seconds float64            `json:"seconds"`
	Loss    *float64           `json:"train_loss"` // over this process's steps; null if there were none
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Diverged says that the loss of the last step was not finite: the weights are of no use.
	Diverged bool `json:"diverged,omitempty"`
	Stopped  bool `json:"stopped"` // by a signal, with a checkpoint: the same command resumes
	// DiskBytes is what this process read of weights that do not fit into --max-memory.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
}

func (j *job) report(out io.Writer) error {
	r := &j.result
	var err error
	switch {
	case j.JSON:
		err = json.NewEncoder(out).Encode(r)
	case r.Stopped && j.SaveSteps < 0:
		_, err = fmt.Fprintf(out, "Stopped after %d steps; nothing was saved because of --save-steps -1.\n", r.Steps)
	case r.Stopped:
		_, err = fmt.Fprintf(out, "Stopped and saved after %d steps; the same command resumes.\n", r.Steps)
	case r.Diverged:
		_, err = fmt.Fprintf(out, "%d steps in %.1fs; the run diverged, so the model in %s is of no use: use a lower --learning-rate or a lower --max-grad-norm\n", r.Steps, r.Seconds, r.Output)
	default:
		_, err = fmt.Fprintf(out, "%d steps in %.1fs; the model is in %s\n", r.Steps, r.Seconds, r.Output)
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// watch sets stop to the number of the first SIGINT or SIGTERM. A second signal ends the process,
// unless it is patient: a terminal and a launcher may send one signal each.
func watch(stop *atomic.Int32, patient bool) func() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal) // os.Interrupt is one on every system
			stop.Store(int32(number))
			if !patient {
				signal.Stop(signals)
			}
		case <-done:
		}
	}()
	return func() { signal.Stop(signals); close(done) }
}

// job is a run with its flags checked.
type job struct {
	*runCmd
	model   string // folder
	ranks   int
	here    int   // ranks that share this process's or this machine's memory and processors
	process bool  // this process is one of the ranks
	threads int   // of one rank
	memory  int64 // of --max-memory, 0 for none
	log     *slog.Logger
	diag    cmdline.Diagnostics
	vocab   int // ids that the model has, or 0 if that is not known
	data    *texts
	stop    atomic.Int32 // the signal that ends the run after its step, 0 for none
	result  runResult    // of rank 0
}

func (c *runCmd) job(diag cmdline.Diagnostics) (*job, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	folder, err := c.folder()
	if err != nil {
		return nil, err
	}
	if err := c.checkGGUF(folder); err != nil {
		return nil, err
	}
	j := &job{runCmd: c, model: folder, threads: c.Threads, diag: diag,
		log: slog.New(slog.NewTextHandler(diag, nil))}
	if j.memory, err = c.memory(); err != nil {
		return nil, err
	}
	if err := j.findWorld(); err != nil {
		return nil, err
	}
	if j.threads == 0 {
		j.threads = max(1, runtime.GOMAXPROCS(0)/j.here)
	}
	if c.MixedPrecision == "" {
		c.MixedPrecision = "no"
	}
	return j, nil
}

// check validates the values of flags.
func (c *runCmd) check() error {
	for _, n := range []struct {
		name  string
		value float64
		least float64
	}{{"--batch", float64(c.Batch), 1}, {"--sequence", float64(c.Sequence), 2}, {"--gradient-accumulation-steps", float64(c.GradientAccumulationSteps), 1},
		{"--num-processes", float64(c.NumProcesses), 0}, {"--threads", float64(c.Threads), 0}, {"--max-steps", float64(c.MaxSteps), 0},
		{"--epochs", c.Epochs, 0}, {"--max-grad-norm", c.MaxGradNorm, 0}, {"--learning-rate", c.LearningRate, 0}, {"--warmup-steps", float64(c.WarmupSteps), 0},
		{"--warmup-ratio", c.WarmupRatio, 0}, {"--weight-decay", c.WeightDecay, 0}, {"--save-steps", float64(c.SaveSteps), -1}, {"--eval-steps", float64(c.EvalSteps), -1},
		{"--save-total-limit", float64(c.SaveTotalLimit), 0}, {"--log-steps", float64(c.LogSteps), 0}} {
		if !(n.value >= n.least) {
			return cmdline.Misusef("got %s %v, want at least %v", n.name, n.value, n.least)
		}
	}
	if c.WarmupRatio > 1 {
		return cmdline.Misusef("got --warmup-ratio %v, want at most 1", c.WarmupRatio)
	}
	if c.Epochs == 0 && c.MaxSteps == 0 {
		return cmdline.Misusef("--epochs is 0: use --max-steps")
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
	return c.checkSchedule()
}

// scheduleOptions returns the options of --lr-scheduler-kwargs, which checkSchedule has checked.
func (c *runCmd) scheduleOptions() (options map[string]any) {
	_ = json.Unmarshal([]byte(c.LRSchedulerKwargs), &options)
	return options
}

// checkSchedule rejects names and options of schedules that do not exist, before data is read.
func (c *runCmd) checkSchedule() error {
	var options map[string]any
	if c.LRSchedulerKwargs != "" {
		if err := json.Unmarshal([]byte(c.LRSchedulerKwargs), &options); err != nil {
			return cmdline.Misusef("--lr-scheduler-kwargs %s: got no JSON object (%w), want one such as {\"num_cycles\": 2}", c.LRSchedulerKwargs, err)
		}
	}
	adam, err := optim.NewAdamW(nil, optim.AdamOptions{LR: 1})
	if err != nil {
		return err
	}
	warmup, steps := 0, 1
	if _, err := optim.NewScheduler(adam, optim.ScheduleSpec{Name: c.LRScheduler, WarmupSteps: &warmup, TrainingSteps: &steps, Options: options}); err != nil {
		return cmdline.Misusef("--lr-scheduler: %w", err)
	}
	return nil
}

// name returns the model's name for the config of an adapter: as the user wrote it.
func (c *runCmd) name() string {
	if c.Model != "" {
		return c.Model
	}
	return c.M
}

// lockFile is locked in the output folder while a run writes to it.
const lockFile = ".heft-train.lock"

// lock makes the output folder and takes its lock, so that no other run writes to it. A run that
// was killed leaves no lock. Without locks in the file system it warns and continues.
func (j *job) lock() (unlock func(), err error) {
	if err := os.MkdirAll(j.Output, 0o777); err != nil {
		return nil, err
	}
	lock, err := filelock.Acquire(filepath.Join(j.Output, lockFile))
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("--output %s: another train run, process %d, writes to this folder: wait for it or use another folder", j.Output, held.PID)
	case errors.Is(err, errors.ErrUnsupported):
		j.log.Warn("the file system has no locks: make sure that no other run writes to the output folder", "output", j.Output)
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("--output %s: locking: %w", j.Output, err)
	}
	return func() {
		if err := lock.Release(); err != nil {
			j.log.Warn("the lock of the output folder was not released", "error", err)
		}
	}, nil
}

// begin checks that checkpoints in the output folder belong to the same run, and removes what
// killed runs left.
func (j *job) begin() error {
	from, err := os.Stat(j.model)
	if err != nil {
		return err
	}
	to, err := os.Stat(j.Output)
	if err != nil {
		return err
	}
	if os.SameFile(from, to) {
		return cmdline.Misusef("--output is the folder of the model: use another folder")
	}
	atomicfile.RemoveStale(j.Output)
	stale := []string{".checkpoint-*.tmp", ".checkpoint-*.gone"} // of a process that died
	if j.Resume == "never" {
		stale = append(stale, "checkpoint-*")
	}
	if err := removeAll(j.Output, stale); err != nil {
		return err
	}
	checkpoints, err := filepath.Glob(filepath.Join(j.Output, "checkpoint-*"))
	if err != nil {
		return err
	}
	return j.settle(len(checkpoints) > 0 && j.Resume == "auto")
}

// removeAll removes what in dir matches any pattern.
func removeAll(dir string, patterns []string) error {
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}
