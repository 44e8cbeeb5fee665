package batches

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// A Job is a file that a command runs.
type Job struct {
	Backend Backend
	In      string // path of a JSONL file; lines may have different endpoints
	Out     string // path of the results
	Errors  string // path of the results of lines that failed; it is removed if there are none
}

// Run answers the lines of a file that have no result yet in Out or Errors, to which it appends: after a run
// that was ended early it continues. It fails if the file has a line that is no request, or with the cause of
// ctx.
func Run(ctx context.Context, j Job) (Counts, error) {
	in, err := os.Open(j.In)
	if err != nil {
		return Counts{}, fmt.Errorf("batches: %w", err)
	}
	defer in.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner{backend: &j.Backend, places: newPlaces(&j.Backend), in: in, name: "run", allowed: j.Backend.allow(""), failed: cancel}
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
	c := r.progress()
	c.Total = c.Completed + c.Failed
	return c, err
}
