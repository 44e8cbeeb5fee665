package batches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/internal/atomicfile"
)

// process takes a batch from its current state to its end. If the server stops first, the batch
// keeps its state and the next process continues from there.
func (s *Server) process(ctx context.Context, k *keptBatch) {
	in, err := os.Open(s.files.data(k.Batch.Input))
	if err != nil {
		s.broken(k, "input_file_missing", "The input file of this batch no longer exists.", err)
		return
	}
	defer in.Close()
	r := &runner{backend: s.backend, places: s.places, in: in, owner: k.Owner, name: k.name(), allowed: s.backend.allow(k.Batch.Endpoint)}
	s.mu.Lock()
	begun := k.Batch.InProgressAt != nil
	s.mu.Unlock()
	if !begun && !s.validate(ctx, k, r) {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.failed = cancel
	if err := s.openResults(k, r); err != nil {
		s.broken(k, "storage_failed", "The results of this batch cannot be written: "+reasonOf(err), err)
		return
	}
	s.mu.Lock()
	r.counts.Total, k.runner = k.Batch.Counts.Total, r
	s.mu.Unlock()
	err = r.run(ctx)
	if err == nil {
		err = context.Cause(ctx) // ctx may have ended the last lines early
	}
	s.end(ctx, k, r, err)
}

// validate checks the input and reports whether the batch continues.
func (s *Server) validate(ctx context.Context, k *keptBatch, r *runner) bool {
	count, wrong, err := s.backend.validate(ctx, r.in, r.allowed)
	switch {
	case errors.Is(err, errStopped):
		return false
	case errors.Is(err, errCancelled):
		s.enter(k, cancelled, func(b *batch) **int64 { return &b.CancelledAt })
		return false
	case errors.Is(err, errExpired):
		s.enter(k, expired, func(b *batch) **int64 { return &b.ExpiredAt })
		return false
	case err != nil:
		s.broken(k, "invalid_file", "The input file of this batch cannot be read.", err)
		return false
	case wrong != nil:
		s.enter(k, failed, func(b *batch) **int64 {
			b.Errors = &lineErrors{"list", wrong}
			return &b.FailedAt
		})
		return false
	}
	s.change(k, func(b *batch) {
		b.Counts.Total = count
		now := s.now().Unix()
		b.InProgressAt = &now
		if b.Status == validating { // it was not cancelled meanwhile
			b.Status = inProgress
		}
	})
	return true
}

// broken ends a batch that cannot continue.
func (s *Server) broken(k *keptBatch, code, message string, err error) {
	slog.Error("batches: a batch failed", "batch", k.Batch.ID, "reason", err)
	s.enter(k, failed, func(b *batch) **int64 {
		b.Errors = &lineErrors{"list", []*lineError{{Code: code, Message: message}}}
		return &b.FailedAt
	})
}

// reasonOf tells a client why a file could not be written.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, store.ErrFull):
		return "the store is full; delete files, or start the server with a larger --store-limit."
	case atomicfile.IsFull(err):
		return "the disk of the server's store is full; delete files, or free space on it."
	}
	return "see the log of the server."
}

// openResults opens the results of a batch and finds those that an earlier process has written.
func (s *Server) openResults(k *keptBatch, r *runner) (err error) {
	s.files.withdraw(k.OutputID) // the process may have been killed before it wrote the batch's final state
	s.files.withdraw(k.ErrorID)
	if err := s.lock.ready(s.files.data(k.OutputID)); err != nil {
		return err
	}
	if r.out, err = openResults(s.files.data(k.OutputID), s.files.store.Reserve); err != nil {
		return err
	}
	if r.errs, err = openResults(s.files.data(k.ErrorID), s.files.store.Reserve); err == nil {
		err = r.resume()
	}
	if err != nil {
		_ = r.out.file.Close()
		if r.errs != nil {
			_ = r.errs.file.Close()
		}
		return err
	}
	r.spent.recover(r.out.file, r.out.size)
	return nil
}

// end publishes the results of a batch and sets its final state. err says why its lines ended
// early; nil means that they did not.
func (s *Server) end(ctx context.Context, k *keptBatch, r *runner, err error) {
	status, at := completed, func(b *batch) **int64 { return &b.CompletedAt }
	var message *lineError
	switch {
	case errors.Is(err, errStopped):
		_, _ = r.out.close(), r.errs.close() // results that did not reach the disk are computed again
		return
	case errors.Is(err, errCancelled):
		status, at = cancelled, func(b *batch) **int64 { return &b.CancelledAt }
	case errors.Is(err, errExpired):
		status, at = expired, func(b *batch) **int64 { return &b.ExpiredAt }
		err = r.expire(context.WithoutCancel(ctx))
		if err != nil {
			slog.Error("batches: lines of an expired batch have no result", "batch", k.Batch.ID, "reason", err)
		}
	case err != nil:
		slog.Error("batches: a batch failed", "batch", k.Batch.ID, "reason", err)
		status, at = failed, func(b *batch) **int64 { return &b.FailedAt }
		message = &lineError{Code: "storage_failed", Message: "The results of this batch cannot be written: " + reasonOf(err)}
	default:
		s.enter(k, finalizing, func(b *batch) **int64 { return &b.FinalizingAt })
	}
	output, one := s.publish(k, r.out, k.OutputID, "output")
	errorFile, two := s.publish(k, r.errs, k.ErrorID, "error")
	if err := errors.Join(one, two); err != nil && message == nil {
		slog.Error("batches: a batch failed", "batch", k.Batch.ID, "reason", err)
		status, at = failed, func(b *batch) **int64 { return &b.FailedAt }
		message = &lineError{Code: "storage_failed", Message: "The results of this batch cannot be written: " + reasonOf(err)}
	}
	s.enter(k, status, func(b *batch) **int64 {
		b.Counts, b.Output, b.ErrorFile = r.progress(), output, errorFile
		r.spending().into(b)
		if message != nil {
			b.Errors = &lineErrors{"list", []*lineError{message}}
		}
		k.runner = nil
		return at(b)
	})
}

// publish makes results a file of the batch's owner and returns its id, or nil if there are no
// results.
func (s *Server) publish(k *keptBatch, r *results, id, kind string) (*string, error) {
	if err := r.close(); err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	if r.size == 0 {
		_ = os.Remove(s.files.data(id)) // if this fails, removeOthers removes it at the next start
		return nil, nil
	}
	if _, err := os.Stat(s.files.data(id)); err != nil {
		return nil, fmt.Errorf("batches: %w", err) // the file was removed meanwhile
	}
	name := fmt.Sprintf("%s_%s.jsonl", k.Batch.ID, kind)
	now := s.now()
	err := s.files.addResults(&keptFile{Owner: k.Owner, Order: newOrder(now), File: file{ID: id, Object: "file", Bytes: r.size,
		CreatedAt: now.Unix(), Filename: name, Purpose: purposeOutput, Status: "processed"}})
	if err != nil {
		return nil, err // clients cannot read a file without a description
	}
	return &id, nil
}
