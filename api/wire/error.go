package wire

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// Kind is the class of an Error. Each kind has an HTTP status; a dialect adds its own names.
type Kind uint8

// The kinds.
const (
	Internal     Kind = iota // the server failed
	Invalid                  // the request is invalid
	TooLong                  // prompt and answer exceed the context
	NoModel                  // no model has the requested name
	Overloaded               // the server is full; retry after RetryAfter
	Draining                 // the server is shutting down
	Interrupted              // the client disconnected
	Unavailable              // the model's files can no longer be read
	NoRoute                  // no endpoint has the requested path
	NoMethod                 // the endpoint does not have the requested method
	Unauthorized             // the request has no valid API key
	Forbidden                // the request comes from a page or a host that is not allowed
	TooLarge                 // the body exceeds the limit
	TooSlow                  // the body arrived too slowly
	NotFound                 // the resource in the path does not exist
	NoPrevious               // the response that a request continues does not exist
	RateLimited              // the client has reached a limit of its API key; see Error.RetryAfter
	NotOffered               // the endpoint is known, but this server does not implement it
	Loading                  // the model is still being loaded; retry after RetryAfter
	Encoded                  // the body is compressed
	NoWebSocket              // the endpoint does not support WebSockets
)

// StatusClientClosed is the status of Interrupted. It appears in access logs, and clients that have
// closed one direction receive it.
const StatusClientClosed = 499

var statuses = [...]int{
	Internal:     http.StatusInternalServerError,
	Invalid:      http.StatusBadRequest,
	TooLong:      http.StatusBadRequest,
	NoModel:      http.StatusNotFound,
	Overloaded:   http.StatusServiceUnavailable,
	Draining:     http.StatusServiceUnavailable,
	Interrupted:  StatusClientClosed,
	Unavailable:  http.StatusServiceUnavailable,
	NoRoute:      http.StatusNotFound,
	NoMethod:     http.StatusMethodNotAllowed,
	Unauthorized: http.StatusUnauthorized,
	Forbidden:    http.StatusForbidden,
	TooLarge:     http.StatusRequestEntityTooLarge,
	TooSlow:      http.StatusRequestTimeout,
	NotFound:     http.StatusNotFound,
	NoPrevious:   http.StatusBadRequest,
	RateLimited:  http.StatusTooManyRequests,
	NotOffered:   http.StatusNotImplemented,
	Loading:      http.StatusServiceUnavailable,
	Encoded:      http.StatusUnsupportedMediaType,
	NoWebSocket:  http.StatusUpgradeRequired,
}

// Status returns the HTTP status of k.
func (k Kind) Status() int {
	if int(k) >= len(statuses) {
		return http.StatusInternalServerError
	}
	return statuses[k]
}

// Operators reports whether the server's operator must act on an error of kind k.
func (k Kind) Operators() bool { return k == Internal || k == Unavailable }

// An Error says why there is no answer, or why an answer ends early. It belongs to no dialect.
type Error struct {
	Kind       Kind
	Field      string // path of the invalid field in the client's names; "" if there is none
	Message    string // for the client
	RetryAfter time.Duration
	Err        error // the cause; may be nil
}

// Error returns the message, preceded by the field.
func (e *Error) Error() string {
	if e.Field != "" {
		return "request: " + e.Field + ": " + e.Message
	}
	return "request: " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Invalidf returns an error about one field of a request. If field is "", it is about the whole
// body.
func Invalidf(field, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// An ErrorWriter writes err in the form of one dialect. It must be called before anything else is
// written.
type ErrorWriter func(w http.ResponseWriter, err error)

// PrepareError does what all dialects do before they write e, which was made from err. It logs
// errors that need the operator's attention. It sets the headers that say when to retry and that
// the connection closes.
func PrepareError(w http.ResponseWriter, e *Error, err error) {
	if e.Kind.Operators() {
		about := []any{"reason", err}
		if e.Err != nil && err == error(e) { // the client does not see the cause
			about = append(about, "cause", e.Err)
		}
		slog.Error("a request failed", about...)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	if e.Kind == TooSlow || e.Kind == TooLarge { // otherwise the rest of the body would be read as the next request
		w.Header().Set("Connection", "close")
	}
}

// NoSuchRoute returns the error for a path without an endpoint. near is a path that the client may
// have meant, or "".
func NoSuchRoute(r *http.Request, near string) *Error {
	message := "Invalid URL (" + r.Method + " " + r.URL.Path + ")"
	if near != "" {
		message += ". Did you mean " + near + "? Check the base URL of the client."
	}
	return &Error{Kind: NoRoute, Message: message}
}
