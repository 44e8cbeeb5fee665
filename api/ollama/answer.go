package ollama

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// A reply is an answer, or a line of a stream, which has only new text. The last line has done,
// done_reason and counts. Durations are in nanoseconds.
type reply struct {
	Model    string    `json:"model"`
	Created  time.Time `json:"created_at"`
	Message  *message  `json:"message,omitzero"`  // of /api/chat
	Response *string   `json:"response,omitzero"` // of /api/generate
	Thinking string    `json:"thinking,omitzero"` // of /api/generate
	Done     bool      `json:"done"`
	Reason   string    `json:"done_reason,omitzero"`
	Context  []int32   `json:"context,omitzero"`
	LogProbs []logProb `json:"logprobs,omitzero"`
	Total    int64     `json:"total_duration,omitzero"`
	Load     int64     `json:"load_duration,omitzero"`
	counts
}

// counts are numbers of tokens, and the time they took.
type counts struct {
	Prompt         int   `json:"prompt_eval_count,omitzero"`
	PromptDuration int64 `json:"prompt_eval_duration,omitzero"`
	Answer         int   `json:"eval_count,omitzero"`
	AnswerDuration int64 `json:"eval_duration,omitzero"`
}

type message struct {
	Role     string `json:"role"` // assistant
	Content  string `json:"content"`
	Thinking string `json:"thinking,omitzero"`
	Calls    []call `json:"tool_calls,omitzero"`
}

type call struct {
	ID       string   `json:"id,omitzero"`
	Function function `json:"function"`
}

type function struct {
	Index     int             `json:"index"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object
}

type logProb struct {
	Token   string    `json:"token"`
	LogProb float32   `json:"logprob"`
	Bytes   []int     `json:"bytes,omitzero"`
	Top     []logProb `json:"top_logprobs,omitzero"`
}

// The done_reason of requests without a prompt.
const reasonLoad, reasonUnload = "load", "unload"

// An answer is built from the deltas of one generation. It is for use by one goroutine.
type answer struct {
	*request
	runs   *generate.Generations
	memory *generate.AnswerMemory // nil for a stream, which collects only the ids
	ids    []int32                // of the answer, if keepIDs
	open   call                   // started, but not complete
	args   strings.Builder        // arguments of open
	finish generate.Reason
}

// answer generates the answer to q and sends it, at once or line by line.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, q *request) error {
	switch {
	case q.empty && q.unload:
		wire.WriteJSON(w, http.StatusOK, q.last(reasonUnload))
		return nil
	case q.empty:
		wire.WriteJSON(w, http.StatusOK, q.last(reasonLoad))
		return nil
	case q.unload:
		_ = s.models.Unload(ctx, q.model.Name) // once this request has ended; the answer does not depend on it
	}
	runs, err := q.model.StartAll(ctx, []generate.Request{q.Request})
	if err != nil {
		return err
	}
	defer runs.Close()
	q.times.started = time.Now()
	a := &answer{request: q, runs: runs, memory: generate.NewAnswerMemory(ctx)}
	if q.stream {
		return a.send(ctx, w, s.keepAlive)
	}
	var whole parts
	for {
		p, err := runs.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = a.memory.Take(&p, q.LogProbs || q.keepIDs)
		}
		if err != nil {
			return err
		}
		whole.add(a.take(&p))
	}
	r := a.end(ctx)
	whole.into(r)
	wire.WriteJSON(w, http.StatusOK, r)
	return nil
}

// send sends the answer as lines. An error is sent as a line.
func (a *answer) send(ctx context.Context, w http.ResponseWriter, keepAlive time.Duration) error {
	out := wire.NewLines(w, func() any { return a.line(&piece{}) })
	err := wire.Each(ctx, out, keepAlive, a.runs.Next, func(p generate.PromptDelta) error {
		if a.keepIDs {
			if err := a.memory.Take(&generate.PromptDelta{Delta: generate.Delta{Tokens: p.Tokens}}, true); err != nil {
				return err
			}
		}
		if part := a.take(&p); part.says() {
			return out.Send(a.line(&part))
		}
		return nil
	})
	switch {
	case err == nil:
		_ = out.Send(a.end(ctx)) // the client may have disconnected
		return nil
	case errors.Is(err, wire.ErrGone):
		return err
	case !out.Started():
		return err
	}
	e := generate.AsError(err, "")
	if e.Kind.Operators() {
		slog.Error("a stream failed", "reason", err)
	}
	_ = out.Send(newErrorBody(e)) // the client may have disconnected
	return wire.ErrGone
}

// A piece is new output.
type piece struct {
	text, thinking string
	calls          []call
	logProbs       []logProb
}

func (p *piece) says() bool {
	return p.text != "" || p.thinking != "" || len(p.calls) > 0 || len(p.logProbs) > 0
}

// take converts a delta to a piece. The piece has the calls that are complete.
func (a *answer) take(p *generate.PromptDelta) piece {
	if a.times.first.IsZero() {
		a.times.first = time.Now()
	}
	out := piece{text: p.Text}
	if !a.hidden {
		out.thinking = p.Reasoning
	}
	for i := range p.Calls {
		a.call(&p.Calls[i], &out)
	}
	for i := range p.Tokens {
		t := &p.Tokens[i]
		if a.keepIDs {
			a.ids = append(a.ids, t.ID)
		}
		if a.LogProbs {
			out.logProbs = append(out.logProbs, a.logProb(t))
		}
	}
	if p.Finish != "" {
		a.finish = p.Finish
	}
	return out
}

// call adds a piece of a call. A call whose arguments are not a JSON object is shown as text.
func (a *answer) call(c *generate.Call, out *piece) {
	if c.Name != "" {
		a.open = call{Function: function{Index: c.Index, Name: c.Name}}
		a.args.Reset()
	}
	if c.ID != "" {
		a.open.ID = c.ID
	}
	a.args.WriteString(c.Arguments)
	if !c.Ended {
		return
	}
	arguments := a.args.String()
	if c.Broken || !json.Valid([]byte(arguments)) {
		out.text += a.open.Function.Name + " " + arguments
		return
	}
	a.open.Function.Arguments = json.RawMessage(arguments)
	out.calls = append(out.calls, a.open)
}

func (a *answer) logProb(t *generate.Token) logProb {
	l := a.named(t.ID, t.LogProb)
	for _, top := range t.Top {
		l.Top = append(l.Top, a.named(top.ID, top.LogProb))
	}
	return l
}

func (a *answer) named(id int32, value float32) logProb {
	words, bytes, _ := a.model.TokenText(id)
	l := logProb{Token: words, LogProb: value}
	for _, b := range bytes {
		l.Bytes = append(l.Bytes, int(b))
	}
	return l
}

// line returns an object with new output.
func (q *request) line(p *piece) *reply {
	r := &reply{Model: q.model.Name, Created: time.Now().UTC(), LogProbs: p.logProbs}
	if q.chat {
		r.Message = &message{Role: "assistant", Content: p.text, Thinking: p.thinking, Calls: p.calls}
	} else {
		r.Response, r.Thinking = &p.text, p.thinking
	}
	return r
}

// last returns an object without output that ends the answer.
func (q *request) last(reason string) *reply {
	r := q.line(&piece{})
	r.Done, r.Reason = true, reason
	return r
}

// end returns the last object of the answer.
func (a *answer) end(ctx context.Context) *reply {
	r := a.last(string(a.finish))
	usage, now := a.runs.Usage(), time.Now()
	first := a.times.first
	if first.IsZero() {
		first = now
	}
	r.Total = now.Sub(a.times.begin).Nanoseconds()
	r.Load = a.times.started.Sub(a.times.begin).Nanoseconds()
	r.counts = counts{usage.Prompt, first.Sub(a.times.started).Nanoseconds(), usage.Completion, now.Sub(first).Nanoseconds()}
	if a.keepIDs {
		r.Context = append(a.Prompt[:len(a.Prompt):len(a.Prompt)], a.ids...)
	}
	wire.RecordTokens(ctx, usage.Prompt, usage.Completion)
	return r
}

// parts collects the pieces of an answer that is sent at once.
type parts struct {
	text, thinking strings.Builder
	rest           piece
}

func (w *parts) add(p piece) {
	w.text.WriteString(p.text)
	w.thinking.WriteString(p.thinking)
	w.rest.calls = append(w.rest.calls, p.calls...)
	w.rest.logProbs = append(w.rest.logProbs, p.logProbs...)
}

// into adds the whole output to the last object.
func (w *parts) into(r *reply) {
	words := w.text.String()
	if r.LogProbs = w.rest.logProbs; r.Message != nil {
		r.Message.Content, r.Message.Thinking, r.Message.Calls = words, w.thinking.String(), w.rest.calls
		return
	}
	r.Response, r.Thinking = &words, w.thinking.String()
}
