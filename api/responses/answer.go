package responses

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/wire"
)

// An answer is a response that is being generated. It is for use by one goroutine.
type answer struct {
	*request
	server  *Server
	owner   string
	runs    *generate.Generations
	out     *wire.Events // nil if there is no stream
	builder *builder
	run     *run // nil if the response is not stored
	memory  *generate.AnswerMemory
	claim   *wire.Claim
	pending []generate.Token // tokens that have shown no text yet
	finish  generate.Reason
}

// answer generates the response to q and sends it, at once or as events.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, q *request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runs, err := q.model.StartAll(ctx, []generate.Request{q.Request})
	if err != nil {
		return inputError(err)
	}
	defer runs.Close()
	a := &answer{request: q, server: s, owner: wire.OwnerOf(ctx), runs: runs, memory: generate.NewAnswerMemory(ctx), claim: wire.ClaimOf(ctx)}
	if q.response.Store {
		a.run = newRun(a.owner, q, cancel)
		s.running.add(a.run)
		defer s.running.remove(a.run)
	}
	if q.stream {
		a.out = wire.NewEvents(w)
		a.out.Announce(q.model.Loading)
		a.builder = newBuilder(q.response, q.encrypt, a.out.SendNamed)
		return a.end(ctx, w, a.stream(ctx))
	}
	a.builder = newBuilder(q.response, q.encrypt, nil)
	_ = a.builder.begin() // without a stream it sends nothing
	return a.end(ctx, w, a.collect(ctx))
}

// collect adds all deltas to the response.
func (a *answer) collect(ctx context.Context) error {
	for {
		p, err := a.runs.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.take(p); err != nil {
			return err
		}
	}
}

// stream sends the events of all deltas.
func (a *answer) stream(ctx context.Context) error {
	if a.builder.begin() != nil {
		return wire.ErrGone
	}
	var failed error // why generation failed; nil if the client disconnected
	err := wire.Each(ctx, a.out, a.server.keepAlive, a.runs.Next, func(p generate.PromptDelta) error {
		err := a.take(p)
		var own *wire.Error
		if errors.As(err, &own) {
			failed = err
		}
		return err
	})
	if failed != nil {
		return failed
	}
	return err
}

// take adds a delta to the response.
func (a *answer) take(p generate.PromptDelta) error {
	if err := a.memory.Take(&p, true); err != nil {
		return err
	}
	steps, err := a.steps(&p)
	if err != nil {
		return err
	}
	if a.run != nil {
		a.run.add(steps)
	}
	for _, step := range steps {
		if err := a.builder.add(step); err != nil {
			return err
		}
	}
	if p.Finish != "" {
		a.finish = p.Finish
	}
	return nil
}

// steps returns the new output of a delta in order. Pieces of the open call come before text.
func (a *answer) steps(p *generate.PromptDelta) (steps []step, err error) {
	var probs []json.RawMessage
	if a.LogProbs {
		a.pending = append(a.pending, p.Tokens...)
		if p.Text != "" {
			if probs, err = a.logProbs(); err != nil {
				return nil, err
			}
		}
		if p.Text != "" || p.Reasoning != "" || len(p.Calls) > 0 {
			a.pending = nil
		}
	}
	if p.Reasoning != "" {
		steps = append(steps, step{kind: stepReasoning, text: p.Reasoning})
	}
	calls := p.Calls
	for len(calls) > 0 && calls[0].Name == "" {
		steps, calls = a.call(steps, calls[0]), calls[1:]
	}
	if p.Text != "" {
		steps = append(steps, step{kind: stepText, text: p.Text, probs: probs})
	}
	for _, c := range calls {
		steps = a.call(steps, c)
	}
	return steps, nil
}

// call appends the steps of a piece of a call.
func (a *answer) call(steps []step, c generate.Call) []step {
	if c.Index > 0 && a.conversation.SingleCall {
		return steps
	}
	if c.Name != "" {
		steps = append(steps, step{kind: stepCall, callID: c.ID, callee: a.callees.of(c.Name), custom: c.Custom})
	}
	if c.Arguments != "" {
		steps = append(steps, step{kind: stepArguments, text: c.Arguments, custom: c.Custom})
	}
	if c.Ended && c.Broken {
		steps = append(steps, step{kind: stepBroken})
	}
	return steps
}

// logProbs returns the log-probabilities of the pending tokens as JSON. It reserves memory for
// them.
func (a *answer) logProbs() (list []json.RawMessage, err error) {
	for i := range a.pending {
		b, err := encode(openaijson.NewToken(openaijson.TokenNames{Model: a.model}, &a.pending[i]))
		if err != nil {
			return nil, err
		}
		const copies = 3 // here, in the answer and in the stored response
		if err := a.claim.KeepAnswer(copies * len(b)); err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// end ends the response, stores it, and sends it or its last events. err says why generation ended
// early.
func (a *answer) end(ctx context.Context, w http.ResponseWriter, err error) error {
	r := a.response
	r.Usage = newUsage(a.runs.Usage())
	stopped := errors.Is(err, errCancelled)
	switch {
	case err == nil && a.finish == generate.FinishLength:
		r.Status, r.Incomplete = incomplete, &incompleteDetails{Reason: "max_output_tokens"}
	case err == nil:
		now := time.Now().Unix()
		r.Status, r.Completed = completed, &now
	case stopped, errors.Is(err, wire.ErrGone), ctx.Err() != nil:
		r.Status = cancelled
	default:
		own := generate.AsError(err, "input")
		if own.Kind.Operators() && a.out != nil {
			slog.Error("a stream failed", "reason", err)
		}
		r.Status, r.Error = failed, &failure{Code: "server_error", Message: own.Message}
	}
	sent := a.builder.end()
	if a.run != nil {
		a.run.end(r, func() {
			if a.out != nil || err == nil || stopped { // otherwise the client does not know the id
				a.server.save(a.owner, &record{r, a.items, a.builder.pieces, a.encrypt})
			}
		})
	}
	if err == nil || stopped {
		wire.RecordTokens(ctx, r.Usage.Input, r.Usage.Output)
	}
	switch {
	case a.out == nil && (err == nil || stopped):
		wire.WriteJSON(w, http.StatusOK, r)
		return nil
	case a.out == nil:
		return inputError(err)
	case sent == nil && a.builder.last() == nil:
		_ = a.out.Line(done) // the client may have disconnected
	}
	return nil
}
