package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heftai/heft/internal/sample"
)

// Request is a prompt and how to continue it. The engine reads its slices until the request has
// ended; they must not change until then.
type Request struct {
	Prompt []int32 // at least one id
	// Params says how tokens are chosen. Params.Stop are the ids that end a choice, including the
	// model's end-of-text ids unless these are to be ignored.
	Params sample.Params
	// MaxTokens limits each choice. A negative value means the rest of the context. With 0
	// nothing is generated, for use with PromptLogProbs.
	MaxTokens int
	N         int    // choices; 0 means 1
	Seed      uint64 // of the choices' randomness; choice i draws from stream i

	LogProbs       bool // of generated tokens
	PromptLogProbs bool // of the prompt's tokens; disables prefix reuse
	TopLogProbs    int  // number of most likely ids for each generated token
	TopPrompt      int  // likewise for each prompt token

	// Constrain creates the constraint of a choice. Submit calls it once for each choice. nil
	// means that any id may follow.
	Constrain func(choice int) Constraint

	// Adapter is the name of the adapter for the tokens; "" means none.
	Adapter string
	// Adapted makes the sequences with Adapter; nil: those of the adapter that has the name now.
	Adapted NewSequence

	// Salt separates cached prefixes: the request shares them only with requests of the same
	// salt.
	Salt string

	// Client names the client of the request. Waiting requests of different clients take turns;
	// "" counts as a client, too.
	Client string

	// Background marks work that no client waits for, such as a batch. Its choices come after all
	// others: they use slots, pages and room in a pass that the others leave, and are preempted
	// for them.
	Background bool

	// Prediction is the approximate expected answer. Its tokens are used as guesses, see
	// Options.DraftTokens. The answer does not depend on it.
	Prediction []int32

	// Embed requests an embedding of the prompt instead of a continuation. MaxTokens must be 0.
	// The answer is one event.
	Embed Pooling
}

// Reason says why a choice ended.
type Reason string

// The reasons why a choice ends. The last two are visible only to metrics: a Stream returns an
// error instead.
const (
	FinishStop   Reason = "stop"   // an id of Params.Stop, Stream.Stop, or an embedding
	FinishLength Reason = "length" // MaxTokens, the context or the KV cache
	FinishAbort  Reason = "abort"  // the client disconnected, or the engine was closed
	FinishError  Reason = "error"  // a forward pass failed
)

// NoToken is the value of Event.Token in an event without a token.
const NoToken int32 = -1

// Event is a step of one choice: a token, or the prompt's log-probabilities.
type Event struct {
	Choice  int
	Token   int32            // NoToken if there is none
	LogProb float32          // of Token, if requested
	Top     []sample.LogProb // the most likely ids at its position, if requested
	// Prompt has an entry for each id of the prompt. The first is zero, because it has no
	// predecessor. It is in choice 0's first event, which has no token.
	Prompt []Scored
	// Embedding is the result of a request with Embed. Its length is the model's width.
	Embedding []float32
	// Finish is set in a choice's last event. If an id of Params.Stop ended the choice, the event
	// has that id.
	Finish Reason
}

// Scored is a token of the prompt with its log-probability.
type Scored struct {
	LogProb float32
	Rank    int32 // 1 for the most likely token of the vocabulary; see [sample.Rank]
	Top     []sample.LogProb
}

var (
	// ErrDraining is returned by Submit after Shutdown was called.
	ErrDraining = errors.New("engine: shutting down")
	// ErrClosed is returned by Submit and Stream.Next after Close.
	ErrClosed = errors.New("engine: closed")
	// ErrOverloaded is wrapped by an OverloadedError.
	ErrOverloaded = errors.New("engine: too many requests are waiting")
	// ErrStopped is returned by Next after Stream.Close.
	ErrStopped = errors.New("engine: stream closed by its reader")
)

// OverloadedError reports that the queue is full, and when to retry.
type OverloadedError struct {
	Waiting    int
	RetryAfter time.Duration // estimate, whole seconds
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("%v (%d); retry after %v", ErrOverloaded, e.Waiting, e.RetryAfter)
}

func (e *OverloadedError) Unwrap() error { return ErrOverloaded }

// ContextError reports that a prompt leaves no room for a token.
type ContextError struct {
	Prompt int // tokens
	Limit  int // tokens of prompt and continuation together
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("engine: a prompt of %d tokens does not fit a context of %d", e.Prompt, e.Limit)
}

// RequestError names a field of a Request that has an invalid value.
type RequestError struct {
	Field string
	Err   error
}

func (e *RequestError) Error() string { return fmt.Sprintf("engine: %s: %v", e.Field, e.Err) }

func (e *RequestError) Unwrap() error { return e.Err }

func badRequest(field, format string, args ...any) error {
	return &RequestError{field, fmt.Errorf(format, args...)}
}

// maxChoices is the maximum of N, because each choice copies the prompt.
const maxChoices = 1024

// check rejects a request that a model with vocab ids and limit tokens of context cannot run.
func (r *Request) check(vocab, limit int) error {
	if len(r.Prompt) == 0 {
		return badRequest("prompt", "it is empty")
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= vocab {
			return badRequest("prompt", "token id %d at %d is outside the vocabulary of %d", id, i, vocab)
		}
	}
	for i, id := range r.Prediction {
		if id < 0 || int(id) >= vocab {
			return badRequest("prediction", "token id %d at %d is outside the vocabulary of %d", id, i, vocab)
		}
	}
	need := len(r.Prompt) + 1
	if r.MaxTokens == 0 {
		need--
	}
	if need > limit {
		return &ContextError{len(r.Prompt), limit}
	}
	if r.N < 0 || r.N > maxChoices {
		return badRequest("n", "%d is outside 0..%d", r.N, maxChoices)
	}
	if r.TopLogProbs < 0 || r.TopLogProbs > vocab {
		return badRequest("top_logprobs", "%d is outside 0..%d", r.TopLogProbs, vocab)
	}
	if r.TopPrompt < 0 || r.TopPrompt > vocab {
		return badRequest("prompt_logprobs", "%d is outside 0..%d", r.TopPrompt, vocab)
	}
	if err := r.checkEmbed(); err != nil {
		return err
	}
	if err := r.Params.Validate(vocab); err != nil {
		return &RequestError{"params", err}
	}
	return nil
}

// ends reports whether token ends the text.
func (r *Request) ends(token int32) bool { return slices.Contains(r.Params.Stop, token) }
