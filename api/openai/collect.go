package openai

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/heftai/heft/api/generate"
)

// collected is one choice of a response that is sent at once.
type collected struct {
	text    strings.Builder
	thought strings.Builder
	calls   []toolCall
	outcome
	tokens []generate.Token // if log-probabilities or ids are shown
	prompt []generate.Token
	finish string
}

// collect reads all of runs; choice i of run k is answer k·n+i. edit, if not nil, edits each delta
// before it is collected. The answer's memory is reserved in the request's claim as it grows.
// Generation pauses while no memory is free. If none becomes free, collect returns a *wire.Error.
func (c *common) collect(ctx context.Context, runs *generate.Generations, count int, edit func(*generate.PromptDelta)) ([]collected, error) {
	answers := make([]collected, count)
	memory := generate.NewAnswerMemory(ctx)
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
		if err := memory.Take(&p, c.LogProbs || c.ReturnIDs); err != nil {
			return nil, err
		}
		if !c.LogProbs && !c.ReturnIDs {
			p.Tokens = nil
		}
		a := &answers[p.PromptIndex*c.N+p.Choice]
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
