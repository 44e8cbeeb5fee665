package generate

import (
	"context"

	"github.com/heftai/heft/api/wire"
)

// AnswerMemory reserves memory for an answer that is collected before it is sent. It adds to the
// request's claim as the answer grows. Generation pauses while no memory is free.
type AnswerMemory struct {
	claim *wire.Claim
	free  int
}

// NewAnswerMemory returns the memory of an answer to the request of ctx.
func NewAnswerMemory(ctx context.Context) *AnswerMemory {
	return &AnswerMemory{claim: wire.ClaimOf(ctx)}
}

// TextBytes is the memory for each byte of a text that is collected in a builder and then written as JSON.
const TextBytes = 8

// The memory of a part of a collected answer until the answer is sent, in bytes.
const (
	engineBytes   = 8   // a token of any answer: in the engine's sequence, which grows
	callBytes     = 256 // a piece of a call, beside its text
	tokenBytes    = 160 // a token: in a list that grows, and its id in JSON
	topTokenBytes = 20  // one of the likeliest ids beside it
)

// Take reserves memory for a part. tokens says whether its tokens are kept, too. It fails with an
// *wire.Error if no memory becomes free.
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

// reserve takes memory from the claim in steps, as the parts of an answer are small.
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
