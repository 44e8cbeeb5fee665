package openaijson

import (
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// errorObject is OpenAI's error object. Param and Code are null if they are empty.
type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// ErrorBody is the body of a response or an event with an error.
type ErrorBody struct {
	Error errorObject `json:"error"`
}

// codes maps kinds of errors to OpenAI's codes.
var codes = map[wire.Kind]string{
	wire.TooLong:      "context_length_exceeded",
	wire.NoModel:      "model_not_found",
	wire.Overloaded:   "overloaded",
	wire.Draining:     "shutting_down",
	wire.Loading:      "model_loading",
	wire.Unavailable:  "model_unavailable",
	wire.Interrupted:  "request_cancelled",
	wire.NoMethod:     "method_not_allowed",
	wire.Unauthorized: "invalid_api_key",
	wire.Forbidden:    "forbidden",
	wire.TooLarge:     "request_too_large",
	wire.TooSlow:      "request_timeout",
	wire.Encoded:      "unsupported_content_encoding",
	wire.NoWebSocket:  "websocket_not_supported",
	wire.RateLimited:  "rate_limit_exceeded",
	wire.NoPrevious:   "previous_response_not_found",
}

// NewErrorBody returns e in OpenAI's form.
func NewErrorBody(e *wire.Error) ErrorBody {
	kind := "invalid_request_error"
	if e.Kind.Status() >= http.StatusInternalServerError {
		kind = "server_error"
	}
	if e.Kind == wire.RateLimited {
		kind = "rate_limit_error"
	}
	return ErrorBody{errorObject{e.Message, kind, orNull(e.Field), orNull(codes[e.Kind])}}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// WriteError is the wire.ErrorWriter of OpenAI's endpoints. It logs errors that need the operator's
// attention.
func WriteError(w http.ResponseWriter, err error) {
	e := generate.AsError(err, "")
	wire.PrepareError(w, e, err)
	wire.WriteJSON(w, e.Kind.Status(), NewErrorBody(e))
}
