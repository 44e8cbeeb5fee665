package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/tokenizer"
)

// Kind is the class of an Error; dialects have a status for each.
type Kind uint8

// The kinds.
const (
	Internal    Kind = iota // the server's fault
	Invalid                 // the request's fault
	TooLong                 // prompt and answer do not fit the context
	NoModel                 // there is no model of that name
	Overloaded              // come back after RetryAfter
	Draining                // the server is going away
	Interrupted             // the client has gone away
	Unavailable             // the model's files cannot be read any more
)

// Error says why there is no answer, or no more of it.
type Error struct {
	Kind       Kind
	Param      string // the request's field at fault, as the client calls it; "" if none
	Message    string // for the client
	RetryAfter time.Duration
	Err        error // what is behind it; may be nil
}

// Error is the message with the package and the field.
func (e *Error) Error() string {
	if e.Param != "" {
		return "generate: " + e.Param + ": " + e.Message
	}
	return "generate: " + e.Message
}

// Unwrap is what is behind the error.
func (e *Error) Unwrap() error { return e.Err }

// Invalidf refuses the field param of a request.
func Invalidf(param, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// AsError makes an *Error of any error, sorting those of the packages below. The
// parameter that was at fault is called param where the error is about the prompt.
func AsError(err error, param string) *Error {
	var (
		own     *Error
		long    *engine.ContextError
		request *engine.RequestError
		busy    *engine.OverloadedError
		words   *chat.Error
		many    *tokenizer.TooManyError
		weights *engine.WeightError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &long):
		return tooLong(param, long.Prompt, 0, long.Limit)
	case errors.As(err, &many):
		return &Error{Kind: TooLong, Param: param, Err: err, Message: fmt.Sprintf(
			"This model's maximum context length is %d tokens, your prompt has at least %d.", many.Max, many.AtLeast)}
	case errors.As(err, &request):
		if request.Field != "prompt" {
			param = request.Field
		}
		return &Error{Kind: Invalid, Param: param, Message: fmt.Sprintf("Invalid value for '%s': %v.", param, request.Err), Err: err}
	case errors.As(err, &weights):
		return &Error{Kind: Unavailable, Message: weights.Error(), Err: err}
	case errors.As(err, &words):
		return &Error{Kind: Invalid, Param: param, Message: words.Message, Err: err}
	case errors.Is(err, tokenizer.ErrTooSlow), errors.Is(err, tokenizer.ErrTooLong):
		return &Error{Kind: Invalid, Param: param, Message: err.Error(), Err: err}
	case errors.As(err, &busy):
		return &Error{Kind: Overloaded, RetryAfter: busy.RetryAfter, Err: err,
			Message: fmt.Sprintf("The server has as many requests as it can queue; retry after %d s.", int(busy.RetryAfter.Seconds()))}
	case errors.Is(err, engine.ErrDraining), errors.Is(err, engine.ErrClosed):
		return &Error{Kind: Draining, RetryAfter: time.Second, Message: "The server is shutting down.", Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, engine.ErrStopped):
		return &Error{Kind: Interrupted, Message: "The client closed the request.", Err: err}
	}
	return &Error{Kind: Internal, Message: err.Error(), Err: err}
}

func tooLong(param string, prompt, answer, limit int) *Error {
	e := &Error{Kind: TooLong, Param: param}
	e.Message = fmt.Sprintf("This model's maximum context length is %d tokens, your prompt has %d.", limit, prompt)
	if answer > 0 {
		e.Message = fmt.Sprintf("This model's maximum context length is %d tokens, you asked for %d (%d in the prompt, %d in the answer).",
			limit, prompt+answer, prompt, answer)
	}
	return e
}
