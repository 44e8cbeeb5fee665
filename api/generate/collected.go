package generate

import (
	"context"

	"github.com/heftai/heft/api/wire"
)

// AnswerMemory reserves memory for an answer that is collected before it is sent. It grows the
// request's claim with the answer. Generation pauses while no memory is free.
type AnswerMemory struct {
	claim *wire.Claim
	free  int
}

// NewAnswerMemory returns the memory of an answer to the request of ctx.
func NewAnswerMemory(ctx context.Context) *AnswerMemory {
	return &AnswerMemory{claim: wire.ClaimOf(ctx)}
}

// TextBytes is the memory per byte of a text that is collected in a builder and then written as
// JSON.
const TextBytes = 8

// The memory of the parts of a collected answer until the answer is sent, in bytes.
const (
	engineBytes   = 8   // per token of any answer: in the engine's growing sequence
	callBytes     = 256 // per piece of a call, in addition to its text
	tokenBytes    = 160 // per token that is kept: in a growing list, and its id in JSON
	topTokenBytes = 20  // per alternative token of a token that is kept
)

// Take reserves memory for a part. tokens reports whether the part's tokens are kept, too. Take
// returns a *wire.Error if no memory becomes free.
func (a *AnswerMemory) Take(p *PromptDelta, tokens bool) error {
	n := engineBytes*len(p.Tokens) + TextBytes*(len(p.Text)+2*len(p.Reasoning)) // dialects send reasoning under two names
	for _, c := range p.Calls {
		n += callBytes + TextBytes*(len(c.Name)+len(c.ID)+len(c.Arguments))
	}
	lists := [][]Token{p.Prompt, p.Tokens}
	if !tokens {
		lists = lists[:1]
	}
	for _, list := range lists {
		for i := range list {
			n += tokenBytes + topTokenBytes*len(list[i].Top)
		}
	}
	return a.reserve(n)
}

// reserve grows the claim in steps, because the parts of an answer are small.
func (a *AnswerMemory) reserve(n int) error {
	const step = 4 << 10
	if n > a.free {
		more := (n - a.free + step - 1) / step * step
		if err := a.claim.KeepAnswer(more); err != nil {
			return err
		}
		a.free += more
	}
	a.free -= n
	return nil
}
