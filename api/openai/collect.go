package openai

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// collected is one choice of an answer that is sent at once.
type collected struct {
	text    strings.Builder
	thought strings.Builder
	calls   []toolCall
	outcome
	tokens []generate.Token // if log-probabilities or ids are shown
	prompt []generate.Token
	finish string
}

// collect reads all of runs; choice i of run k is answer k·n+i. edit, if there is one, says
// what of each part counts. The answer's memory is reserved in the request's claim as it grows.
// Generation pauses while there is none; if none becomes free, collect fails with an *wire.Error.
func (c *common) collect(ctx context.Context, runs *generate.Runs, count int, edit func(*generate.Part)) ([]collected, error) {
	answers := make([]collected, count)
	memory := reserve{claim: wire.ClaimOf(ctx)}
	for {
		p, err := runs.Next(ctx)
		if errors.Is(err, io.EOF) {
			return answers, nil
		}
		if err != nil {
			return nil, err
		}
		if edit != nil {
			edit(&p)
		}
		size := engineBytes * len(p.Tokens)
		if !c.LogProbs && !c.ReturnIDs {
			p.Tokens = nil
		}
		if err := memory.take(size + partBytes(&p)); err != nil {
			return nil, err
		}
		a := &answers[p.Run*c.N+p.Choice]
		a.text.WriteString(p.Text)
		a.thought.WriteString(p.Reasoning)
		for _, c := range p.Calls {
			a.calls = addCall(a.calls, c)
		}
		a.outcome.add(p.Calls)
		a.tokens = append(a.tokens, p.Tokens...)
		a.prompt = append(a.prompt, p.Prompt...)
		a.finish = a.reason(string(p.Finish))
	}
}

// What a part of a collected answer takes until the answer is sent, in bytes.
const (
	engineBytes = 8   // a token of any answer: in the engine's sequence, which grows
	textBytes   = 8   // a byte of text: in a builder that grows, and in JSON
	callBytes   = 256 // a piece of a call, beside its text
	tokenBytes  = 160 // a token: in a list that grows, and its id in JSON
	topBytes    = 20  // one of the likeliest ids beside it
)

// partBytes is about the memory that a part takes in a collected answer.
func partBytes(p *generate.Part) int {
	n := textBytes * (len(p.Text) + 2*len(p.Reasoning)) // the reasoning is sent under two names
	for _, c := range p.Calls {
		n += callBytes + textBytes*(len(c.Name)+len(c.ID)+len(c.Arguments))
	}
	for _, list := range [][]generate.Token{p.Tokens, p.Prompt} {
		for i := range list {
			n += tokenBytes + topBytes*len(list[i].Top)
		}
	}
	return n
}

// reserve takes memory from a claim in steps, as the parts of an answer are small.
type reserve struct {
	claim *wire.Claim
	free  int
}

func (r *reserve) take(n int) error {
	const step = 4 << 10
	if n > r.free {
		more := (n - r.free + step - 1) / step * step
		if err := r.claim.KeepAnswer(more); err != nil {
			return err
		}
		r.free += more
	}
	r.free -= n
	return nil
}
