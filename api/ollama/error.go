package ollama

import (
	"errors"
	"net/http"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// errorBody is the body of a response or a line of a stream with an error.
type errorBody struct {
	Error string `json:"error"`
}

func newErrorBody(e *wire.Error) errorBody {
	if e.Field == "" || strings.Contains(e.Message, "'"+e.Field+"'") {
		return errorBody{e.Message}
	}
	return errorBody{"'" + e.Field + "': " + e.Message}
}

// WriteError is the wire.ErrorWriter of this dialect. It logs errors that need the operator's
// attention.
func WriteError(w http.ResponseWriter, err error) {
	e := generate.AsError(err, "")
	wire.PrepareError(w, e, err)
	wire.WriteJSON(w, e.Kind.Status(), newErrorBody(e))
}

// respond writes err, if it is not nil and the client has not been told of it yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}
