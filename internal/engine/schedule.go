package engine

import (
	"errors"
	"fmt"
	"slices"
)

// plan decides which tokens the next pass computes, and reports whether there are any.
func (e *Engine) plan() bool {
	e.prompts, e.planned, e.rows = e.prompts[:0], e.planned[:0], e.rows[:0]
	e.drafter.room = orAny(e.model.Limits().States)
	b := passBudget{logitRows: max(e.options.MaxLogitRows-(len(e.running)-1), 1)} // each other choice has one
	for i := 0; i < len(e.running); i++ {                                         // room may shorten the list from its end
		e.planChoice(e.running[i], &b)
	}
	if (len(e.prompts) == 0 || e.model.Limits().Streaming) && e.options.DraftTokens >= 0 && !e.options.OneByOne {
		b.decoding += e.guess(b.decoding, b.logitRows-1)
	}
	prompts := min(e.options.MaxBatchTokens, orAny(e.model.Limits().Tokens)) - b.decoding
	if b.decoding > 0 {
		prompts = min(prompts, e.options.ChunkTokens)
	}
	e.share(prompts)
	for i := 0; i < len(e.running); i++ { // as above
		if c := e.running[i]; c.seq != nil && c.chunk > 0 && e.room(c, c.chunk) {
			e.planned = append(e.planned, c)
			r := c.row()
			e.follow(c, &r)
			e.rows = append(e.rows, r)
		}
	}
	e.running = slices.DeleteFunc(e.running, func(c *choice) bool { return c.seq == nil && !c.ended }) // see room
	return len(e.rows) > 0
}

// A passBudget is shared by the choices of a pass.
type passBudget struct {
	decoding  int // tokens so far of choices that decode
	logitRows int // rows of logits that are left
}

// planChoice sets c.chunk, the number of its tokens in the pass, if c decodes. Otherwise it
// appends c to the prompts, whose chunks share sets, with a bound in c.most.
func (e *Engine) planChoice(c *choice, b *passBudget) {
	c.chunk, c.decodes = 0, false
	c.noGuess()
	if c.seq == nil || c.restoring != nil || c.stream.stalled.Load() {
		return
	}
	c.most = c.pending()
	switch {
	case c.most == 1:
		if e.room(c, 1) {
			c.chunk = 1
			b.decoding++
		}
		return
	case c.scored < c.prompt: // each token of the prompt needs a row of logits
		c.most = min(c.most, b.logitRows)
		b.logitRows -= c.most
	case c.seq.Len() >= c.prompt && c.most <= maxForced+1: // forced tokens
		if n := e.together(c, min(c.most, b.logitRows, e.options.MaxBatchTokens-b.decoding-len(e.running))); e.room(c, n) {
			c.chunk, c.decodes = n, true
			b.decoding += n
			b.logitRows -= n - 1
		}
		return
	case c.unscored > 0 && c.seq.Len() < len(c.tokens)-c.unscored-1: // up to the first forced token without a score
		c.most = len(c.tokens) - c.unscored - 1 - c.seq.Len()
	case c.unscored > 0:
		c.most = min(c.most, b.logitRows)
		b.logitRows -= c.most
	}
	e.prompts = append(e.prompts, c)
}

// share divides a budget of tokens among the prompts: half to the oldest, so that none starves,
// and the rest to those with the fewest tokens left, so that a short prompt does not wait for a
// long one.
func (e *Engine) share(budget int) {
	if len(e.prompts) > 0 {
		oldest := e.prompts[0]
		oldest.chunk = min(oldest.most, (budget+1)/2)
		budget -= oldest.chunk
	}
	for budget > 0 {
		var next *choice
		for _, c := range e.prompts {
			if c.seq != nil && c.most > c.chunk && (next == nil || c.shorter(next)) {
				next = c
			}
		}
		if next == nil {
			return
		}
		n := min(next.most-next.chunk, budget)
		next.chunk += n
		budget -= n
	}
}

// shorter reports whether c's prompt precedes d's in share. Background prompts come last; among
// equals the one with fewer tokens left comes first.
func (c *choice) shorter(d *choice) bool {
	if a, b := c.stream.request.Background, d.stream.request.Background; a != b {
		return b
	}
	return c.most-c.chunk < d.most-d.chunk
}

// room reserves pages for n more tokens of c. If there are none, it takes those of choices whose
// streams are stalled, then those of younger choices. It returns false if c cannot be in this
// pass, or has ended. A stalled choice that loses its pages stays in the list of running ones,
// without a sequence, until the plan is complete.
func (e *Engine) room(c *choice, n int) bool {
	for {
		err := c.seq.Reserve(n)
		switch {
		case err == nil:
			return true
		case !errors.Is(err, ErrKVFull):
			e.fail(c.stream, fmt.Errorf("engine: reserve %d tokens: %w", n, err))
			return false
		}
		if i := e.stalled(); i >= 0 {
			e.setAside(e.running[i])
			continue
		}
		youngest := e.running[len(e.running)-1]
		if youngest == c && len(e.running) == 1 {
			e.complete(c)
			return false
		}
		e.preempt(youngest)
		if youngest == c {
			return false
		}
	}
}
