package batches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A Job is a JSONL file of requests to run without a server.
type Job struct {
	Backend Backend
	In      string // path of a JSONL file; lines may have different endpoints
	Out     string // path of the results
	Errors  string // path of the results of failed lines; removed if there are none
	// Progress, if not nil, is called after each result with the counts so far. Calls do not
	// overlap.
	Progress func(Counts)
}

// runName is the part of the line ids that all runs share.
const runName = "run"

// Run answers all lines of a file that have no result in Out or Errors yet, and appends results to
// these files. It therefore continues a run that was interrupted. A line that is not a valid
// request counts as failed. Run returns the cause of ctx when ctx ends. It fails if Out or Errors
// contains anything but results.
func Run(ctx context.Context, j Job) (Counts, error) {
	in, err := os.Open(j.In)
	if err != nil {
		return Counts{}, fmt.Errorf("batches: %w", err)
	}
	defer in.Close()
	total, err := j.Backend.countLines(ctx, in)
	if err == nil {
		err = errors.Join(checkResults(j.Out), checkResults(j.Errors))
	}
	if err != nil {
		return Counts{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner{backend: &j.Backend, places: newPlaces(&j.Backend), in: in, name: runName, allowed: j.Backend.allow(""), failed: cancel, wrote: j.Progress}
	r.counts.Total = total
	if r.out, err = openResults(j.Out, nil); err != nil {
		return Counts{}, err
	}
	if r.errs, err = openResults(j.Errors, nil); err != nil {
		return Counts{}, errors.Join(err, r.out.close())
	}
	if err = r.resume(); err == nil {
		err = r.run(ctx)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	err = errors.Join(err, r.out.close(), r.errs.close())
	if r.errs.size == 0 {
		_ = os.Remove(j.Errors)
	}
	return r.progress(), err
}

// countLines returns the number of lines that are not blank. It fails if two lines have the same
// custom_id, because their results could not be told apart. It uses 16 bytes of memory per line.
func (b *Backend) countLines(ctx context.Context, in *os.File) (n int, err error) {
	var ids customIDs
	all := newLines(io.NewSectionReader(in, 0, 1<<62))
	for ; ; n++ {
		l, err := all.next()
		if errors.Is(err, io.EOF) {
			return n, ids.checkUnique(in.Name())
		} else if err != nil {
			return n, err
		}
		id, err := b.check(ctx, in, l, b.allow(""))
		var bad *lineError // the line gets this error as its result
		if err != nil && !errors.As(err, &bad) {
			return n, err
		}
		if id != "" {
			ids.add(id, l.number)
		}
	}
}

// checkUnique fails if two lines have the same id. The error names the first line whose id an
// earlier line has.
func (c customIDs) checkUnique(path string) error {
	before, line := 0, 0
	c.repeated(func(first, second int) bool {
		if line == 0 || second < line {
			before, line = first, second
		}
		return true
	})
	if line == 0 {
		return nil
	}
	return fmt.Errorf("batches: %s:%d: custom_id: got the same as on line %d, want a different one on each line", path, line, before)
}

// checkResults fails if the file at path contains anything but results, because a run would
// truncate it.
func checkResults(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	defer f.Close()
	want := []byte(prefix(runName))
	got := make([]byte, len(want))
	n, err := io.ReadFull(f, got)
	if n > 0 && !bytes.HasPrefix(want, got[:n]) {
		return fmt.Errorf("batches: %s exists and has no results of a batch", path)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("batches: %w", err)
	}
	return nil
}
