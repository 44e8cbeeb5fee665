package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/finetune"
)

// modelFlags name the model. A positional M means the same as --model.
type modelFlags struct {
	Model string `help:"Train this folder, cached ORG/NAME[@REVISION] or, with --lora, GGUF file." placeholder:"M"`
	M     string `arg:"" optional:"" help:"Name the model, as --model does."`
}

// folder returns the folder or file of the model.
func (f *modelFlags) folder() (string, error) {
	name := f.Model
	switch {
	case name != "" && f.M != "" && name != f.M:
		return "", cmdline.Misusef("the model was given twice: %s and --model %s", f.M, name)
	case name == "" && f.M == "":
		return "", cmdline.Misusef("got no model, want --model FOLDER or ORG/NAME")
	case name == "":
		name = f.M
	}
	path, err := hub.Local(hub.FromPage(name))
	if err != nil {
		return "", cmdline.Misuse(err)
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && strings.HasSuffix(strings.ToLower(path), ".gguf") {
		return path, nil
	}
	if err != nil || !info.IsDir() {
		return "", cmdline.Misusef("--model %s: got a file, want a folder with config.json, tokenizer.json and the weights, or a GGUF file", name)
	}
	return loader.Folder(path)
}

// runCmd is train run: flags for finetune.Run.
type runCmd struct {
	modelFlags
	Data []string `help:"Train on this JSONL, CSV or Parquet file of records; may repeat." required:"" sep:"none" placeholder:"FILE.jsonl"`
	finetune.Options
	JSON bool `name:"json" help:"Print one JSON object at the end."`
}

// Run trains and writes a folder that serve opens.
func (c *runCmd) Run(ctx context.Context, out cmdline.Output, diag cmdline.Diagnostics) error {
	keepLittle()
	if err := c.check(); err != nil {
		return err
	}
	folder, err := c.folder()
	if err != nil {
		return err
	}
	ranks, _, err := train.Launched()
	if err != nil {
		return cmdline.Misuse(err)
	}
	w := watcher{patient: ranks > 0, stop: make(chan struct{})}
	defer w.end()
	o := c.Options
	o.BaseModel = cmp.Or(c.Model, c.M) // as given by the user
	o.Log, o.Progress = slog.New(slog.NewTextHandler(diag, nil)), diag
	o.Started, o.Interrupt = w.begin, w.stop
	r, err := finetune.Run(ctx, folder, c.Data, o)
	if err != nil {
		return misuse(err)
	}
	if r.Rank == 0 {
		if err := c.report(out, &r); err != nil {
			return err
		}
	}
	if r.BestLost != "" {
		return fmt.Errorf("the model in %s is not the best one: %s", r.Output, r.BestLost)
	}
	if r.Stopped {
		return cmdline.Stopped(syscall.Signal(cmp.Or(w.signal.Load(), int32(syscall.SIGTERM)))) // or one that reached another process
	}
	return nil
}

// check validates the values of flags.
func (c *runCmd) check() error { return misuse(c.Options.Check(c.Data)) }

// misuse marks invalid options as an error of the command line.
func misuse(err error) error {
	if wrong := new(finetune.UsageError); errors.As(err, &wrong) {
		return cmdline.Misuse(err)
	}
	return err
}

// report prints the result of a run.
func (c *runCmd) report(out io.Writer, r *finetune.Result) error {
	var err error
	switch {
	case c.JSON:
		err = json.NewEncoder(out).Encode(r)
	case r.Stopped && c.SaveSteps < 0:
		_, err = fmt.Fprintf(out, "Stopped after %s; nothing was saved because of --save-steps -1.\n", cmdline.Count(r.Steps, "step"))
	case r.Stopped:
		_, err = fmt.Fprintf(out, "Stopped and saved after %s; the same command resumes.\n", cmdline.Count(r.Steps, "step"))
	case r.Diverged:
		_, err = fmt.Fprintf(out, "%s in %.1fs; the run diverged, so the model in %s is of no use: use a lower --learning-rate or a lower --max-grad-norm\n", cmdline.Count(r.Steps, "step"), r.Seconds, r.Output)
	default:
		_, err = fmt.Fprintf(out, "%s in %.1fs; %s\n", cmdline.Count(r.Steps, "step"), r.Seconds, c.outcome(r.Output))
	}
	return err
}

// outcome describes what a folder contains, and the command that serves it.
func (c *runCmd) outcome(dir string) string {
	what, serve := "model", "serve --model "+dir
	if c.LoRA != "" && !c.Merge {
		what, serve = "adapter", "serve --model "+cmp.Or(c.Model, c.M)+" --lora NAME="+dir
	}
	if c.Method == "reward" { // serve does not score texts
		return fmt.Sprintf("the %s is in %s", what, dir)
	}
	return fmt.Sprintf("the %s is in %s: %s", what, dir, serve)
}

// watcher closes stop at the first SIGINT or SIGTERM. A second signal ends the process, unless the
// watcher is patient: a terminal and a launcher may both send a signal.
type watcher struct {
	patient bool
	stop    chan struct{}
	signal  atomic.Int32
	once    sync.Once
	signals chan os.Signal
}

// begin starts watching. Earlier signals end the process.
func (w *watcher) begin() {
	w.signals = make(chan os.Signal, 1)
	signal.Notify(w.signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range w.signals {
			w.once.Do(func() {
				number, _ := s.(syscall.Signal) // os.Interrupt is one on every system
				w.signal.Store(int32(number))
				close(w.stop)
			})
			if !w.patient {
				signal.Stop(w.signals)
			}
		}
	}()
}

// end stops watching.
func (w *watcher) end() {
	if w.signals != nil {
		signal.Stop(w.signals)
		close(w.signals)
	}
}

// keepLittle starts a garbage collection once garbage reaches a tenth of the heap. Collections are
// cheap, because the heap is mostly weights, gradients and optimizer state, which the collector
// does not scan.
func keepLittle() { debug.SetGCPercent(10) }
