package dispatch

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/loader"
)

// ErrKVFull reports that the KV cache has too few free pages. No page was taken. Free a sequence,
// or wait until another sequence is freed.
var ErrKVFull = errors.New("dispatch: the KV cache has no free pages")

// ErrClosed reports that the model was closed.
var ErrClosed = errors.New("dispatch: the model is closed")

// ErrNoAdapter reports that the model has no adapter with the requested name.
var ErrNoAdapter = errors.New("dispatch: no such adapter")

// ErrChanged reports that a file of the model was overwritten while the model was open. A
// [*WeightError] wraps it. Passes fail until the model is opened again or the file is restored.
var ErrChanged = loader.ErrChanged

// A WeightError reports weights that could not be read. The model stays usable: passes that do
// not need these weights still run.
type WeightError struct {
	Path string // of the module; "" if the error was found after a pass
	File string // the faulty shard, "" if unknown
	Err  error
}

// Error names the module and the cause.
func (e *WeightError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("dispatch: weights cannot be read: %v", e.Err)
	}
	if e.File != "" {
		return fmt.Sprintf("dispatch: %s: the weights in %s cannot be read: %v", e.Path, e.File, e.Err)
	}
	return fmt.Sprintf("dispatch: %s: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *WeightError) Unwrap() error { return e.Err }

// weightError asks the checkpoint why memory of its files could not be read.
func (m *Model) weightError(path string, err error) error {
	out := &WeightError{Path: path, Err: err}
	var broken *loader.Error
	var fault *backend.FaultError
	if verdict := m.checkpoint.Verify(); errors.As(verdict, &broken) {
		out.File, out.Err = broken.File, verdict
	} else if errors.As(err, &broken) {
		out.File = broken.File
	} else if errors.As(err, &fault) { // the file is as it was: its disk has failed
		if f, ok := m.checkpoint.FileAt(fault.Address); ok {
			out.File = f.Path
		}
	}
	if errors.Is(out, ErrChanged) {
		var status error = out
		m.changed.Store(&status)
	}
	return out
}

// Explain adds a cause to err, the error of logits that are not finite. The cause is a quantised
// weight whose scale is not finite, if there is one. Explain reads the scales of all quantised
// weights.
func (m *Model) Explain(err error) error {
	if cause := m.binding.CheckScales(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
