package ollama

import (
	"errors"
	"net/http"
	"strings"

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
	wire.PrepareError(w, e, err)
	wire.WriteJSON(w, e.Kind.Status(), newErrorBody(e))
}

// respond answers with what went wrong, if anything did and the client does not know yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}
