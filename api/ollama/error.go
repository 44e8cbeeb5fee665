package ollama

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// errorBody is the body of an answer, or a line of a stream, that carries an error.
type errorBody struct {
	Error string `json:"error"`
}

func newErrorBody(e *wire.Error) errorBody {
	if e.Field == "" || strings.Contains(e.Message, "'"+e.Field+"'") {
		return errorBody{e.Message}
	}
	return errorBody{"'" + e.Field + "': " + e.Message}
}

// WriteError is the wire.ErrorWriter of this dialect. It logs errors that the operator must act on.
func WriteError(w http.ResponseWriter, err error) {
	e := generate.AsError(err, "")
	if e.Kind.Operators() {
		slog.Error("a request failed", "reason", err)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	switch e.Kind {
	case wire.TooSlow, wire.TooLarge: // the rest of the body would be read as the next request
		w.Header().Set("Connection", "close")
	}
	wire.WriteJSON(w, e.Kind.Status(), newErrorBody(e))
}

// respond answers with what went wrong, if anything did and the client does not know yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}
