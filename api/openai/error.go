package openai

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/wire"
)

// WriteError is the wire.ErrorWriter of this dialect. It logs errors that need the operator's
// attention.
func WriteError(w http.ResponseWriter, err error) { openaijson.WriteError(w, err) }

// failStream ends a stream with err. If nothing was sent yet, err is a response; otherwise it is an
// event.
func failStream(e *wire.Events, err error) error {
	if !e.Started() || errors.Is(err, wire.ErrGone) {
		return err
	}
	neutral := generate.AsError(err, "")
	if neutral.Kind.Operators() {
		slog.Error("a stream failed", "reason", err)
	}
	_ = e.Send(openaijson.NewErrorBody(neutral)) // the client may have disconnected
	return wire.ErrGone
}
