package messages

import (
	"errors"
	"net/http"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// errorObject is Anthropic's error object.
type errorObject struct {
	Type    string        `json:"type"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`
}

// errorDetails are for clients that recover from an error.
type errorDetails struct {
	Code string `json:"error_code"`
}

// errLostThread is the cause of the error with which a client sends its whole conversation again: the server keeps no
// threads of messages.
var errLostThread = errors.New("messages: the thread is not stored")

// refuseThread fails if a request continues a thread of messages, of which it has the last messages only.
func refuseThread(f *wire.Fields) {
	thread, ok := f.Object("thread")
	if !ok {
		return
	}
	kind := ""
	if thread.String("type", &kind); kind == "continue" {
		f.FailWith(&wire.Error{Kind: wire.NotFound, Field: f.Path("thread"), Message: "The server keeps no threads; send all messages.", Err: errLostThread})
	}
}

// errorBody is the body of an answer, or an event, that carries an error.
type errorBody struct {
	Type      string      `json:"type"`
	Error     errorObject `json:"error"`
	RequestID *string     `json:"request_id"`
}

// statusOverloaded is Anthropic's status of a server that is full.
const statusOverloaded = 529

// types are Anthropic's types of errors by kind; the rest are invalid_request_error or, from 500 on, api_error.
var types = map[wire.Kind]string{
	wire.NoModel:      "not_found_error",
	wire.NoRoute:      "not_found_error",
	wire.NotFound:     "not_found_error",
	wire.Overloaded:   "overloaded_error",
	wire.Draining:     "overloaded_error",
	wire.Loading:      "overloaded_error",
	wire.Unauthorized: "authentication_error",
	wire.Forbidden:    "permission_error",
	wire.RateLimited:  "rate_limit_error",
	wire.TooLarge:     "request_too_large",
	wire.TooSlow:      "timeout_error",
}

func newErrorBody(e *wire.Error, h http.Header) errorBody {
	kind := types[e.Kind]
	switch {
	case kind != "":
	case e.Kind.Status() >= http.StatusInternalServerError:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	body := errorBody{Type: "error", Error: errorObject{Type: kind, Message: message(e)}}
	if errors.Is(e, errLostThread) {
		body.Error.Details = &errorDetails{"thread_not_found"}
	}
	if id := h.Get(serverID); id != "" {
		body.RequestID = &id
	}
	return body
}

// message is what went wrong, with the field in front if the message does not name it.
func message(e *wire.Error) string {
	if e.Field == "" || strings.Contains(e.Message, "'"+e.Field+"'") {
		return e.Message
	}
	return "'" + e.Field + "': " + e.Message
}

// The header with the request's id, as the middleware and as Anthropic's clients call it.
const (
	serverID = "X-Request-Id"
	clientID = "Request-Id"
)

// nameRequest shows the request's id to Anthropic's clients.
func nameRequest(w http.ResponseWriter) {
	if id := w.Header().Get(serverID); id != "" {
		w.Header().Set(clientID, id)
	}
}

// WriteError is the wire.ErrorWriter of this dialect. It logs errors that the operator must act on.
func WriteError(w http.ResponseWriter, err error) {
	e := generate.AsError(err, "")
	wire.PrepareError(w, e, err)
	status := e.Kind.Status()
	if e.Kind == wire.Overloaded || e.Kind == wire.Draining {
		status = statusOverloaded
	}
	nameRequest(w)
	wire.WriteJSON(w, status, newErrorBody(e, w.Header()))
}

// respond answers with what went wrong, if anything did and the client does not know yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}

// inputError gives errors about the tools of chat completions the names of this API.
func inputError(err error) error {
	var own *wire.Error
	if err == nil || !errors.As(err, &own) {
		return err
	}
	e := *own
	renamed := strings.NewReplacer(".function.parameters", ".input_schema", ".function.", ".")
	if strings.HasPrefix(e.Field, "tools[") {
		e.Field, e.Message = renamed.Replace(e.Field), renamed.Replace(e.Message)
	}
	return &e
}
