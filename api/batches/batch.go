package batches

import (
	"context"
	"path/filepath"
	"regexp"
	"time"

	"github.com/heftai/heft/api/wire"
)

// A batch is what clients see of a batch.
type batch struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Endpoint     string            `json:"endpoint"`
	Model        *string           `json:"model"` // of the first answer
	Errors       *lineErrors       `json:"errors"`
	Input        string            `json:"input_file_id"`
	Window       string            `json:"completion_window"`
	Status       string            `json:"status"`
	Output       *string           `json:"output_file_id"`
	ErrorFile    *string           `json:"error_file_id"`
	CreatedAt    int64             `json:"created_at"`
	InProgressAt *int64            `json:"in_progress_at"`
	ExpiresAt    int64             `json:"expires_at"`
	FinalizingAt *int64            `json:"finalizing_at"`
	CompletedAt  *int64            `json:"completed_at"`
	FailedAt     *int64            `json:"failed_at"`
	ExpiredAt    *int64            `json:"expired_at"`
	CancellingAt *int64            `json:"cancelling_at"`
	CancelledAt  *int64            `json:"cancelled_at"`
	Counts       Counts            `json:"request_counts"`
	Usage        *usage            `json:"usage"`
	Metadata     map[string]string `json:"metadata"`
}

type lineErrors struct {
	Object string       `json:"object"`
	Data   []*lineError `json:"data"`
}

// States of a batch.
const (
	validating = "validating"
	inProgress = "in_progress"
	finalizing = "finalizing"
	completed  = "completed"
	failed     = "failed"
	expired    = "expired"
	cancelling = "cancelling"
	cancelled  = "cancelled"
)

// ended reports whether a state is a last one.
func ended(status string) bool {
	return status == completed || status == failed || status == expired || status == cancelled
}

// keptBatch is the state of a batch on disk. The ids of its files are chosen with its own, so that a later
// process finds what this one has written.
type keptBatch struct {
	Batch    batch  `json:"batch"`
	Order    order  `json:"order"`
	Owner    string `json:"owner"`
	OutputID string `json:"output_id"`
	ErrorID  string `json:"error_id"`

	cancel context.CancelCauseFunc // nil unless it runs
	runner *runner                 // nil unless it answers lines

	unsaved bool // the state on disk is an earlier one, because the disk was full
}

// Causes of the end of a batch's context. The engine's log does not show them as failures.
var (
	errCancelled error = &wire.Error{Kind: wire.Interrupted, Message: "The batch was cancelled."}
	errExpired   error = &wire.Error{Kind: wire.Interrupted, Message: "The completion window has ended."}
	errStopped   error = &wire.Error{Kind: wire.Interrupted, Message: "The server is shutting down."}
)

// batchID is what ids of batches look like, so that one can be part of a path.
var batchID = regexp.MustCompile(`^batch_[a-z0-9]{1,64}$`)

// name is the part of the id that ids of lines have.
func (k *keptBatch) name() string { return k.Batch.ID[len("batch_"):] }

func (s *Server) path(id string) string { return filepath.Join(s.dir, id+descriptionSuffix) }

// change changes the state of a batch and keeps it. If it cannot be kept, the log says so, and it is written later. A
// process that starts before that continues from the state before.
func (s *Server) change(k *keptBatch, edit func(*batch)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&k.Batch)
	s.save(k)
}

// enter puts a batch into a state, at a time that at points to.
func (s *Server) enter(k *keptBatch, status string, at func(*batch) **int64) {
	s.change(k, func(b *batch) {
		b.Status = status
		now := s.now().Unix()
		*at(b) = &now
	})
}

// view is a batch as a client sees it now. s.mu is held.
func (k *keptBatch) view() batch {
	b := k.Batch
	if k.runner != nil {
		b.Counts = k.runner.progress()
		k.runner.spending().into(&b)
	}
	return b
}

// window is the one completion window that there is.
const window, windowTime = "24h", 24 * time.Hour
