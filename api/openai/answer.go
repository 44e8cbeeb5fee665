package openai

import (
	"context"
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// envelope has the first fields of a response and of each chunk.
type envelope struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

// body is a response with generated text, or a chunk of one. Its choices are of type C.
type body[C any] struct {
	envelope
	Choices []C `json:"choices"`
	// Usage is omitted if it is nil. A nil *usage is written as null.
	Usage any `json:"usage,omitzero"`
	// Scores are those of a conversation's prompt.
	Scores *promptScores `json:"prompt_logprobs,omitzero"`
}

// generation is a request for generated text. It also writes its answer.
type generation interface {
	base() *common
	requests() []generate.Request // one per prompt
	// answer reads all of runs and returns the body of a response that is sent at once.
	answer(ctx context.Context, runs *generate.Generations) (sender, error)
	// stream returns the stream that sends the answer in chunks.
	stream(*wire.Events) stream
}

// sender sends an answer at once.
type sender interface{ send(http.ResponseWriter) }

// stream sends an answer in chunks.
type stream interface {
	// part sends new output of one choice. The end of a choice is sent in an event of its own.
	part(generate.PromptDelta) error
	// end sends what follows the last part.
	end(generate.Usage) error
}

// answer serves an endpoint that generates text. decode decodes its requests.
func answer[G generation](s *Server, w http.ResponseWriter, r *http.Request, decode func(context.Context, *wire.Fields, *generate.Model) (G, error)) {
	var g G
	err := s.read(r, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		g, err = decode(ctx, f, m)
		return err
	})
	if err != nil {
		respond(w, err)
		return
	}
	respond(w, s.generate(r.Context(), w, g))
}

// generate generates the answer to g and sends it, at once or in chunks.
func (s *Server) generate(ctx context.Context, w http.ResponseWriter, g generation) error {
	runs, err := g.base().model.StartAll(ctx, g.requests())
	if err != nil {
		return err
	}
	defer runs.Close()
	if !g.base().Stream {
		whole, err := g.answer(ctx, runs)
		if err != nil {
			return err
		}
		record(ctx, runs.Usage())
		whole.send(w)
		return nil
	}
	out := wire.NewEvents(w)
	out.Announce(g.base().model.Loading)
	chunks := g.stream(out)
	if err := wire.Each(ctx, out, s.keepAlive, runs.Next, chunks.part); err != nil {
		return failStream(out, err)
	}
	record(ctx, runs.Usage())
	_ = chunks.end(runs.Usage()) // the client may have disconnected
	return nil
}

// record adds an answer's tokens to the access log.
func record(ctx context.Context, u generate.Usage) { wire.RecordTokens(ctx, u.Prompt, u.Completion) }

// chunks writes the chunks of one answer.
type chunks[C any] struct {
	envelope
	out       *wire.Events
	withUsage bool // usage is null in all chunks except the last, which has only the usage
	// running is the usage so far, which every chunk shows. It is nil unless the client requested
	// it.
	running *usage
}

func newChunks[C any](c *common, object string, out *wire.Events, requests []generate.Request) chunks[C] {
	chunks := chunks[C]{envelope: c.envelope(object), out: out, withUsage: c.IncludeUsage}
	if c.IncludeUsage && c.ContinuousUsage {
		chunks.running = &usage{}
		for _, r := range requests {
			chunks.running.Prompt += len(r.Prompt)
		}
	}
	return chunks
}

// count adds the tokens of a delta to the running usage.
func (c *chunks[C]) count(p *generate.PromptDelta) {
	if c.running != nil {
		c.running.Completion += len(p.Tokens)
	}
}

// send sends new output of one choice.
func (c *chunks[C]) send(choice C) error {
	b := body[C]{envelope: c.envelope, Choices: []C{choice}}
	switch {
	case c.running != nil:
		c.running.Total = c.running.Prompt + c.running.Completion
		b.Usage = c.running
	case c.withUsage:
		b.Usage = (*usage)(nil)
	}
	return c.out.Send(b)
}

// end implements stream.
func (c *chunks[C]) end(u generate.Usage) error {
	if c.withUsage {
		if err := c.out.Send(body[C]{envelope: c.envelope, Choices: []C{}, Usage: newUsage(u)}); err != nil {
			return err
		}
	}
	return c.out.Line("data: [DONE]")
}
