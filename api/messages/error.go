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

// errorDetails help clients to recover from an error.
type errorDetails struct {
	Code string `json:"error_code"`
}

// errLostThread is the cause of an error after which a client sends its whole conversation again.
// The server does not store threads of messages.
var errLostThread = errors.New("messages: the thread is not stored")

// refuseThread rejects a request that continues a thread of messages and contains only the last
// ones.
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

// errorBody is the body of a response or an event with an error.
type errorBody struct {
	Type      string      `json:"type"`
	Error     errorObject `json:"error"`
	RequestID *string     `json:"request_id"`
}

// statusOverloaded is Anthropic's status for an overloaded server.
const statusOverloaded = 529

// types maps kinds of errors to Anthropic's types. Other kinds are invalid_request_error or, from
// status 500 on, api_error.
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

// message returns the message of e. It starts with the field if the message does not name it.
func message(e *wire.Error) string {
	if e.Field == "" || strings.Contains(e.Message, "'"+e.Field+"'") {
		return e.Message
	}
	return "'" + e.Field + "': " + e.Message
}

// The header with the request's id, under the name that the middleware uses and the one that
// Anthropic's clients read.
const (
	serverID = "X-Request-Id"
	clientID = "Request-Id"
)

// nameRequest copies the request's id to the header that Anthropic's clients read.
func nameRequest(w http.ResponseWriter) {
	if id := w.Header().Get(serverID); id != "" {
		w.Header().Set(clientID, id)
	}
}

// WriteError is the wire.ErrorWriter of this dialect. It logs errors that need the operator's
// attention.
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

// respond writes err, if it is not nil and the client has not been told of it yet.
func respond(w http.ResponseWriter, err error) {
	if err != nil && !errors.Is(err, wire.ErrGone) {
		WriteError(w, err)
	}
}

// inputError renames the fields in errors about tools from those of chat completions to those of
// this API.
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
