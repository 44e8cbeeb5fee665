package batches

import (
	"context"
	"path/filepath"
	"regexp"
	"time"

	"github.com/heftai/heft/api/wire"
)

// A batch is a batch as clients see it.
type batch struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Endpoint     string            `json:"endpoint"`
	Model        *string           `json:"model"` // the model of the first answer
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

// ended reports whether status is a final state.
func ended(status string) bool {
	return status == completed || status == failed || status == expired || status == cancelled
}

// keptBatch is the state of a batch on disk. The ids of its result files are chosen together with
// its own id, so that a later process finds the results that this one has written.
type keptBatch struct {
	Batch    batch  `json:"batch"`
	Order    order  `json:"order"`
	Owner    string `json:"owner"`
	OutputID string `json:"output_id"`
	ErrorID  string `json:"error_id"`

	cancel context.CancelCauseFunc // nil unless the batch runs
	runner *runner                 // nil unless lines are being answered

	unsaved bool // the state on disk is older, because the disk was full
}

// Causes of the end of a batch's context. The engine does not log them as failures.
var (
	errCancelled error = &wire.Error{Kind: wire.Interrupted, Message: "The batch was cancelled."}
	errExpired   error = &wire.Error{Kind: wire.Interrupted, Message: "The completion window has ended."}
	errStopped   error = &wire.Error{Kind: wire.Interrupted, Message: "The server is shutting down."}
)

// batchID matches ids of batches. A matching id is safe as an element of a path.
var batchID = regexp.MustCompile(`^batch_[a-z0-9]{1,64}$`)

// name is the part of the batch's id that ids of its lines contain.
func (k *keptBatch) name() string { return k.Batch.ID[len("batch_"):] }

func (s *Server) path(id string) string { return filepath.Join(s.dir, id+descriptionSuffix) }

// change changes the state of a batch and writes it to disk. If writing fails, change logs the
// error and the state is written later. A process that starts before that continues from the
// previous state.
func (s *Server) change(k *keptBatch, edit func(*batch)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&k.Batch)
	s.save(k)
}

// enter sets the state of a batch and the time that at points to.
func (s *Server) enter(k *keptBatch, status string, at func(*batch) **int64) {
	s.change(k, func(b *batch) {
		b.Status = status
		now := s.now().Unix()
		*at(b) = &now
	})
}

// view returns the batch as a client sees it now. The caller holds s.mu.
func (k *keptBatch) view() batch {
	b := k.Batch
	if k.runner != nil {
		b.Counts = k.runner.progress()
		k.runner.spending().into(&b)
	}
	return b
}

// window is the only completion window that is supported.
const window, windowTime = "24h", 24 * time.Hour
