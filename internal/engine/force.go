package engine

import (
	"fmt"
	"math/bits"
	"time"
)

// maxForced is the maximum number of tokens of a choice that wait for their pass because a
// constraint allowed no others.
const maxForced = 32

// forces reports whether the sampler would choose the only id of a mask.
func (r *Request) forces() bool {
	p := &r.Params
	return len(p.Allow)+len(p.Suppress)+len(p.BadWords)+len(p.Bias) == 0 && p.NoRepeatNGram == 0
}

// force appends tokens to c while its constraint allows a single id. They are computed in one
// pass, in the role of generated tokens, and are emitted at once, or once their log-probabilities
// are known.
func (e *Engine) force(c *choice, now time.Time) error {
	s := c.stream
	if c.constraint == nil || e.options.OneByOne || !s.request.forces() {
		return nil
	}
	most := c.max
	if s.request.LogProbs {
		most-- // the last token ends the choice when its log-probability is known
	}
	for n := 0; n < maxForced && len(c.tokens) < most; n++ {
		id, ok := onlyID(c.choosable().Mask)
		ends := ok && s.request.ends(id)
		if !ok || int(id) >= e.vocab || ends && (s.request.LogProbs || c.generated() < s.request.Params.MinTokens) {
			return nil
		}
		if err := c.accept(id); err != nil {
			return fmt.Errorf("engine: token %d: %w", c.generated(), err)
		}
		c.src.Skip(&s.request.Params)
		c.tokens = append(c.tokens, id)
		if s.request.LogProbs {
			c.unscored++
			continue
		}
		ev := Event{Choice: c.index, Token: id}
		switch {
		case ends:
			ev.Finish = FinishStop
		case len(c.tokens) >= c.max:
			ev.Finish = FinishLength
		}
		e.observers.NextToken(now.Sub(c.last))
		e.totals.generated++
		if ev.Finish != "" {
			e.conclude(c, ev)
			return nil
		}
		s.emit(ev)
	}
	return nil
}

// onlyID returns the id of a mask that has exactly one.
func onlyID(mask []uint64) (id int32, ok bool) {
	for i, w := range mask {
		if w == 0 {
			continue
		}
		if ok || w&(w-1) != 0 {
			return 0, false
		}
		id, ok = int32(i<<6+bits.TrailingZeros64(w)), true
	}
	return id, ok
}

// scoreForced emits forced tokens with their log-probabilities, from the logits of the tokens
// from at on.
func (e *Engine) scoreForced(c *choice, at int, values []float32) error {
	r := &c.stream.request
	for ; len(values) > 0 && c.unscored > 0; values, at = values[e.vocab:], at+1 {
		first := len(c.tokens) - c.unscored
		if at+1 != first {
			continue
		}
		ev := Event{Choice: c.index, Token: c.tokens[first]}
		var err error
		if ev.LogProb, ev.Top, err = e.samplers.first.LogProbs(c.stream.top(r.TopLogProbs), values[:e.vocab], ev.Token, r.TopLogProbs); err != nil {
			return fmt.Errorf("engine: token %d: %w", first-c.prompt, err)
		}
		c.unscored--
		e.observers.NextToken(0)
		e.totals.generated++
		c.stream.emit(ev)
	}
	return nil
}

// together returns how many of the next n tokens of c may be computed in one pass with the same
// bits as one by one. It is at least 1, and less than n if the KV cache has no room.
func (e *Engine) together(c *choice, n int) int {
	if s, ok := c.seq.(interface{ Together(n int) int }); ok {
		n = s.Together(max(n, 1))
	}
	if n > 1 && c.seq.Reserve(n) != nil {
		n = 1
	}
	return max(n, 1)
}
