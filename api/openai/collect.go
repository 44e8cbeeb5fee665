package openai

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/heftai/heft/api/generate"
)

// collected is one choice of an answer that is sent at once.
type collected struct {
	text    strings.Builder
	thought strings.Builder
	calls   []toolCall
	outcome
	tokens []generate.Token
	prompt []generate.Token
	finish string
}

// collect reads all of runs; choice i of run k is answer k·n+i. edit, if there is one, says
// what of each part counts.
func collect(ctx context.Context, runs *generate.Runs, count, n int, edit func(*generate.Part)) ([]collected, error) {
	answers := make([]collected, count)
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
		a := &answers[p.Run*n+p.Choice]
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
