package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/filelock"
	"github.com/heftai/heft/internal/repl"
)

// batchCmd is serve batch.
type batchCmd struct {
	File            string `arg:"" help:"Answer the requests in this JSONL file, one per line." placeholder:"FILE"`
	Model           string `help:"Ask this folder, file or ORG/NAME[@REVISION] (default: a demo)." placeholder:"M"`
	ServedModelName string `help:"Answer requests that name this model (default: the folder's name)." placeholder:"S"`
	Output          string `short:"o" help:"Write answers to this JSONL file (default: FILE with .results.jsonl)." placeholder:"OUT"`
	Errors          string `help:"Write failed lines to this JSONL file (default: OUT with .errors.jsonl)." placeholder:"FILE"`
	placeFlags
	sizeFlags
	adapterFlags
}

// paths returns the output files for answers and for failed lines.
func (c *batchCmd) paths() (out, failed string, err error) {
	if out = c.Output; out == "" {
		out = strings.TrimSuffix(c.File, ".jsonl") + ".results.jsonl"
	}
	if failed = c.Errors; failed == "" {
		failed = strings.TrimSuffix(out, ".jsonl") + ".errors.jsonl"
	}
	for i, a := range []string{c.File, out, failed} {
		for _, b := range []string{c.File, out, failed}[i+1:] {
			if same(a, b) {
				return "", "", cmdline.Misusef("got %s twice among the input, --output and --errors, want three different files", a)
			}
		}
	}
	return out, failed, nil
}

// same reports whether two paths name the same file.
func same(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Run answers the lines that have no answer yet. After a signal, running the same command again
// continues.
func (c *batchCmd) Run(ctx context.Context, k *kong.Context, stderr cmdline.Diagnostics) error {
	out, failed, err := c.paths()
	if err != nil {
		return err
	}
	if info, err := os.Stat(c.File); err != nil {
		return cmdline.Misuse(err)
	} else if !info.Mode().IsRegular() {
		return cmdline.Misusef("%s: got a folder, pipe or device, want a JSONL file", c.File)
	}
	lock, err := filelock.Open(out, filelock.Try)
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("--output %s: another process writes to this file: wait for it, or use another --output", out)
	} else if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if lock != nil {
		defer lock.Close()
	}
	r := newLocal(c.Model, c.placeFlags, c.sizeFlags, c.adapterFlags)
	r.ServedModelName, r.offline = c.ServedModelName, true
	job := batches.Job{In: c.File, Out: out, Errors: failed, Progress: newBatchView(stderr).tell}
	r.backend = func(b batches.Backend) { job.Backend = b }
	_, end, err := r.startLocal(ctx, k)
	if err != nil {
		return err
	}
	defer end()
	return c.answer(ctx, job, stderr)
}

// stoppedBy is the cause of a context that a signal has cancelled.
type stoppedBy struct{ signal syscall.Signal }

func (s stoppedBy) Error() string { return "stopped by a signal" }

// answer runs a job until its end or a signal, and reports how it ended.
func (c *batchCmd) answer(ctx context.Context, job batches.Job, stderr io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal) // os.Interrupt is one on every system
			cancel(stoppedBy{number})
		case <-ctx.Done():
		}
	}()
	counts, err := batches.Run(ctx, job)
	var by stoppedBy
	switch {
	case errors.As(err, &by):
		fmt.Fprintf(stderr, "stopped: %s; run the same command to continue\n", counted(counts))
		return cmdline.Stopped(by.signal)
	case err != nil:
		return err
	case counts.Failed > 0:
		return fmt.Errorf("%s; see %s, and remove it to try those lines again", counted(counts), job.Errors)
	}
	fmt.Fprintf(stderr, "%s: %s\n", counted(counts), job.Out)
	return nil
}

func counted(c batches.Counts) string {
	text := fmt.Sprintf("answered %d of %d lines", c.Completed, c.Total)
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d failed", c.Failed)
	}
	return text
}

// batchView shows progress: on a terminal in a line of its own, elsewhere with a line every 10
// seconds.
type batchView struct {
	out      io.Writer
	terminal bool
	last     time.Time
}

func newBatchView(out cmdline.Diagnostics) *batchView {
	f, ok := out.Writer.(*os.File)
	return &batchView{out: out, terminal: ok && repl.IsTerminal(f), last: time.Now()}
}

// tell shows c, except at the end, which the command reports.
func (v *batchView) tell(c batches.Counts) {
	period := 10 * time.Second
	if v.terminal {
		period = 100 * time.Millisecond
	}
	now := time.Now()
	over := c.Completed+c.Failed == c.Total
	switch {
	case v.terminal && over:
		fmt.Fprint(v.out, "\r\x1b[K")
	case over || now.Sub(v.last) < period:
		return
	case v.terminal:
		fmt.Fprintf(v.out, "\r\x1b[K%s", counted(c))
	default:
		fmt.Fprintln(v.out, counted(c))
	}
	v.last = now
}
