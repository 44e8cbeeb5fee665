package messages

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// An answer is a message that is being generated. It is for use by one goroutine.
type answer struct {
	*request
	builder *builder
	runs    *generate.Generations
	memory  *generate.AnswerMemory // nil for a stream, which collects nothing
	called  bool                   // a call is complete
}

// answer generates the answer to q and sends it, at once or as events.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, q *request) error {
	runs, err := q.model.StartAll(ctx, []generate.Request{q.Request})
	if err != nil {
		return inputError(err)
	}
	defer runs.Close()
	r := &reply{ID: "msg_" + strings.ToLower(rand.Text()), Type: "message", Role: "assistant", Model: q.model.Name, Content: []*block{}, Usage: usage{Input: len(q.Prompt)}}
	a := &answer{request: q, runs: runs, builder: &builder{reply: r, hidden: q.hidden}}
	if q.stream {
		return a.stream(ctx, wire.NewEvents(w), s)
	}
	a.memory = generate.NewAnswerMemory(ctx)
	for {
		p, err := runs.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = a.take(p)
		}
		if err != nil {
			return inputError(err)
		}
	}
	_ = a.builder.end() // without a stream it sends nothing
	wire.RecordTokens(ctx, len(q.Prompt), r.Usage.Output)
	wire.WriteJSON(w, http.StatusOK, r)
	return nil
}

// stream sends the message as events. An error is sent as an event.
func (a *answer) stream(ctx context.Context, out *wire.Events, s *Server) error {
	a.builder.out = out
	out.Announce(a.model.Loading)
	out.Ping(&plainEvent{"ping"})
	if a.builder.begin() != nil {
		return wire.ErrGone
	}
	err := wire.Each(ctx, out, s.keepAlive, a.runs.Next, a.take)
	if err == nil {
		if err = a.builder.end(); err == nil {
			wire.RecordTokens(ctx, len(a.Prompt), a.builder.reply.Usage.Output)
		}
		return nil // the client may have disconnected
	}
	if !errors.Is(err, wire.ErrGone) {
		e := generate.AsError(inputError(err), "")
		if e.Kind.Operators() {
			slog.Error("a stream failed", "reason", err)
		}
		_ = out.SendNamed("error", newErrorBody(e, out.Header())) // the client may have disconnected
	}
	return wire.ErrGone
}

// take adds a delta to the message. Pieces of the open call come before text.
func (a *answer) take(p generate.PromptDelta) error {
	if a.memory != nil {
		if err := a.memory.Take(&p, false); err != nil {
			return err
		}
	}
	if err := a.builder.say(typeThinking, p.Reasoning); err != nil {
		return err
	}
	calls := p.Calls
	for len(calls) > 0 && calls[0].Name == "" {
		if err := a.call(&calls[0]); err != nil {
			return err
		}
		calls = calls[1:]
	}
	if err := a.builder.say(typeText, p.Text); err != nil {
		return err
	}
	for i := range calls {
		if err := a.call(&calls[i]); err != nil {
			return err
		}
	}
	if p.Finish != "" {
		a.finish(&p)
	}
	return nil
}

// call adds a piece of a call.
func (a *answer) call(c *generate.Call) error {
	if c.Index > 0 && a.conversation.SingleCall {
		return nil
	}
	if c.Name != "" {
		if err := a.builder.start(&block{kind: typeToolUse, id: c.ID, name: c.Name}); err != nil {
			return err
		}
	}
	if err := a.builder.say(typeToolUse, c.Arguments); err != nil {
		return err
	}
	a.called = a.called || c.Ended && !c.Broken
	return nil
}

// finish stores why the message ended, and its token counts.
func (a *answer) finish(p *generate.PromptDelta) {
	reason := "end_turn"
	r := a.builder.reply
	switch {
	case p.Finish == generate.FinishLength:
		reason = "max_tokens"
	case p.StopString != "":
		reason = "stop_sequence"
		r.StopSequence = &p.StopString
	case a.called:
		reason = "tool_use"
	}
	r.StopReason = &reason
	u := a.runs.Usage()
	r.Usage = usage{Input: u.Prompt, Output: u.Completion}
	if a.cached {
		r.Usage.Input, r.Usage.CacheRead = u.Prompt-u.Cached, u.Cached
	}
}
