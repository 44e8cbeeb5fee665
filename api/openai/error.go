package openai

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/heftai/heft/api/generate"
)

// Error is OpenAI's error object with its HTTP status. Param and Code are null where they
// are empty.
type Error struct {
	Status  int
	Type    string
	Code    string
	Param   string
	Message string
	// RetryAfter is the header of that name, in seconds; 0 for none.
	RetryAfter int
}

// The types of errors.
const (
	typeInvalid = "invalid_request_error"
	typeServer  = "server_error"
)

// Error is the message.
func (e *Error) Error() string { return "openai: " + e.Message }

// MarshalJSON is the body of an answer: {"error": {…}}.
func (e *Error) MarshalJSON() ([]byte, error) {
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	return json.Marshal(map[string]object{"error": {e.Message, e.Type, orNull(e.Param), orNull(e.Code)}})
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// statusClosed is what access logs say of a client that went away.
const statusClosed = 499

// kinds are the statuses of generate's errors.
var kinds = map[generate.Kind]Error{
	generate.Internal:    {Status: http.StatusInternalServerError, Type: typeServer},
	generate.Invalid:     {Status: http.StatusBadRequest, Type: typeInvalid},
	generate.TooLong:     {Status: http.StatusBadRequest, Type: typeInvalid, Code: "context_length_exceeded"},
	generate.NoModel:     {Status: http.StatusNotFound, Type: typeInvalid, Code: "model_not_found"},
	generate.Overloaded:  {Status: http.StatusServiceUnavailable, Type: typeServer, Code: "overloaded"},
	generate.Draining:    {Status: http.StatusServiceUnavailable, Type: typeServer, Code: "shutting_down"},
	generate.Unavailable: {Status: http.StatusServiceUnavailable, Type: typeServer, Code: "model_unavailable"},
	generate.Interrupted: {Status: statusClosed, Type: typeInvalid, Code: "request_cancelled"},
}

// AsError makes an *Error of any error.
func AsError(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	e := generate.AsError(err, "")
	out := kinds[e.Kind]
	out.Message, out.Param = e.Message, e.Param
	out.RetryAfter = int(e.RetryAfter.Seconds())
	return &out
}

// ours reports whether the server's operator has to do something about it.
func (e *Error) ours() bool {
	return e.Status == http.StatusInternalServerError || e.Code == kinds[generate.Unavailable].Code
}

// WriteError answers with the error object. What is the server's fault is logged.
func WriteError(w http.ResponseWriter, err error) {
	e := AsError(err)
	if e.ours() {
		slog.Error("a request failed", "reason", err)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if e.Status == http.StatusRequestTimeout {
		w.Header().Set("Connection", "close") // its rest would be taken for the next request
	}
	writeJSON(w, e.Status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = encode(w, v) // a client that has gone away misses nothing
}
