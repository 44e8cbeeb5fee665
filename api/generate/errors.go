package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/sample"
	"github.com/heftai/heft/text"
)

// AsError converts an error of the engine, the tokenizer or the chat template to a *wire.Error.
// param is the client's name of the prompt, for errors about the prompt.
func AsError(err error, param string) *wire.Error {
	var (
		own     *wire.Error
		long    *engine.ContextError
		request *engine.RequestError
		busy    *engine.OverloadedError
		words   *text.TemplateError
		many    *text.TooManyTokensError
		weights *engine.WeightError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &long):
		return tooLong(param, long.Prompt, 0, long.Limit)
	case errors.As(err, &many):
		return &wire.Error{Kind: wire.TooLong, Field: param, Err: err, Message: fmt.Sprintf(
			"This model's maximum context length is %d tokens, your prompt has at least %d.", many.Max, many.AtLeast)}
	case errors.As(err, &request):
		if request.Field != "prompt" {
			param = request.Field
		}
		return &wire.Error{Kind: wire.Invalid, Field: param, Message: fmt.Sprintf("Invalid value for '%s': %v.", param, request.Err), Err: err}
	case errors.As(err, &weights):
		return &wire.Error{Kind: wire.Unavailable, Message: weights.Error(), Err: err}
	case errors.As(err, &words):
		return &wire.Error{Kind: wire.Invalid, Field: param, Message: words.Message, Err: err}
	case errors.Is(err, text.ErrTooSlow), errors.Is(err, text.ErrTooLong):
		return &wire.Error{Kind: wire.Invalid, Field: param, Message: err.Error(), Err: err}
	case errors.As(err, &busy):
		return &wire.Error{Kind: wire.Overloaded, RetryAfter: busy.RetryAfter, Err: err,
			Message: fmt.Sprintf("The server has as many requests as it can queue; retry after %d s.", int(busy.RetryAfter.Seconds()))}
	case errors.Is(err, sample.ErrNoCandidate):
		return &wire.Error{Kind: wire.Invalid, Message: "No token may come next: the request's own limits exclude each other, or its grammar can read the text in too many ways.", Err: err}
	case errors.Is(err, engine.ErrDraining), errors.Is(err, engine.ErrClosed):
		return &wire.Error{Kind: wire.Draining, RetryAfter: time.Second, Message: "The server is shutting down.", Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, engine.ErrStopped):
		return wire.Closed(err)
	}
	return &wire.Error{Kind: wire.Internal, Message: err.Error(), Err: err}
}

func tooLong(param string, prompt, answer, limit int) *wire.Error {
	e := &wire.Error{Kind: wire.TooLong, Field: param}
	e.Message = fmt.Sprintf("This model's maximum context length is %d tokens, your prompt has %d.", limit, prompt)
	if answer > 0 {
		e.Message = fmt.Sprintf("This model's maximum context length is %d tokens, you asked for %d (%d in the prompt, %d in the answer).",
			limit, prompt+answer, prompt, answer)
	}
	return e
}
