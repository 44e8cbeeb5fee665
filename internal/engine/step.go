package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heftai/heft/internal/sample"
)

// forward runs one pass over the planned rows and passes the results to their choices.
func (e *Engine) forward() {
	begin := time.Now()
	logits, err := e.model.Forward(e.enter(), e.rows)
	e.leave()
	now := time.Now()
	e.passed = e.took(begin, false)
	step := StepStats{Rows: len(e.rows), Duration: e.passed}
	before, tokens, sum := e.totals.generated, 0, guessed{}
	if err == nil {
		e.drawAll(logits)
	}
	for i, c := range e.planned {
		n := len(e.rows[i].Tokens)
		tokens += n
		if c.ended {
			continue // another choice of its request failed
		}
		if c.generated() == 0 || n > 1 && !c.decodes {
			step.PromptTokens += n
		}
		if err != nil {
			e.broken(c, err)
			continue
		}
		right := e.totals.accepted
		if err := e.take(c, i, logits, now); err != nil {
			e.fail(c.stream, err)
		}
		sum.add(c, int(e.totals.accepted-right))
	}
	e.totals.prompt += int64(step.PromptTokens)
	step.GeneratedTokens = int(e.totals.generated - before)
	if err == nil && len(e.prompts) == 0 {
		e.drafts.costs.Record(tokens, e.took(begin, false))
	}
	e.settle(tokens, sum)
	e.observers.Step(step)
	e.read()
}

// take passes row i of a pass to its choice.
func (e *Engine) take(c *choice, i int, logits Logits, now time.Time) error {
	if c.stream.request.Embed != PoolNone {
		return e.pool(c, i, logits)
	}
	count, values := logits.Row(i)
	end := c.seq.Len()
	if err := e.takeLogits(c, e.rows[i], count, values, now); err != nil {
		return err
	}
	e.followed(c, i, end, logits)
	return nil
}

// enter counts the choices of the pass. The pass is aborted when the readers of all have left.
func (e *Engine) enter() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.step.Err() != nil && e.ctx.Err() == nil {
		e.step, e.cancelStep = context.WithCancel(e.ctx)
	}
	e.live = 0
	for _, c := range e.planned {
		c.inStep = true
		if !c.dropped {
			e.live++
		}
	}
	if e.live == 0 {
		e.cancelStep()
	}
	return e.step
}

func (e *Engine) leave() {
	e.mu.Lock()
	for _, c := range e.planned {
		c.inStep = false
	}
	e.mu.Unlock()
}

// drop records that no reader waits for c, and aborts the running pass if no reader waits for any
// choice in it. The caller holds e.mu.
func (e *Engine) drop(c *choice) {
	if c.dropped {
		return
	}
	c.dropped = true
	if c.inStep {
		if e.live--; e.live == 0 {
			e.cancelStep()
		}
	}
}

// broken ends a request whose pass failed. If the pass was aborted because all readers had left,
// that is not a failure.
func (e *Engine) broken(c *choice, err error) {
	switch {
	case e.reaped(c):
	case e.ctx.Err() != nil:
		e.end(c, FinishAbort, ErrClosed)
	default:
		e.fail(c.stream, fmt.Errorf("engine: forward pass: %w", err))
	}
}

// takeLogits takes a row's logits: log-probabilities of the prompt, and the next token if
// the row reached the end of the known tokens.
func (e *Engine) takeLogits(c *choice, r Row, count int, values []float32, now time.Time) error {
	want := 0
	switch r.Logits {
	case LogitsLast:
		want = 1
	case LogitsAll:
		want = len(r.Tokens)
	}
	if count != want || len(values) != count*e.vocab {
		return fmt.Errorf("engine: %d values in %d rows of logits for %d rows of %d", len(values), count, want, e.vocab)
	}
	end := c.seq.Len()
	if c.taken > 0 {
		return e.verify(c, values, now)
	}
	if r.Logits == LogitsAll {
		if err := e.scorePrompt(c, end-count, values); err != nil {
			return err
		}
		if err := e.scoreForced(c, end-count, values); err != nil {
			return err
		}
	}
	if !c.reached(r) {
		return nil
	}
	if err := e.choose(c, values[len(values)-e.vocab:], now); err != nil || c.ended {
		return err
	}
	e.note(c, 0, c.tokens[end])
	return nil
}

// scorePrompt records log-probabilities from the logits of the prompt's tokens from at on.
func (e *Engine) scorePrompt(c *choice, at int, values []float32) error {
	r := &c.stream.request
	for ; len(values) > 0 && c.scored < c.prompt; values, at = values[e.vocab:], at+1 {
		if at+1 != c.scored {
			continue // known from before a preemption
		}
		id := c.tokens[at+1]
		own, top, err := e.samplers.first.LogProbs(c.stream.top(r.TopPrompt), values[:e.vocab], id, r.TopPrompt)
		if err != nil {
			return fmt.Errorf("engine: prompt token %d: %w", at+1, err)
		}
		c.stream.scores[c.scored] = Scored{own, int32(sample.Rank(values[:e.vocab], id)), top}
		c.scored++
	}
	return nil
}

// choose picks the next token of c and emits it.
func (e *Engine) choose(c *choice, logits []float32, now time.Time) error {
	s := c.stream
	if len(c.tokens) >= c.max { // only the prompt was to be scored
		e.complete(c)
		return nil
	}
	if c.generated() == 0 && c.index == 0 && s.request.PromptLogProbs {
		s.emit(Event{Token: NoToken, Prompt: s.scores})
	}
	ev, err := e.next(c, logits)
	if err != nil {
		return fmt.Errorf("engine: token %d: %w", c.generated(), err)
	}
	c.tokens = append(c.tokens, ev.Token)
	switch {
	case s.request.ends(ev.Token):
		ev.Finish = FinishStop
	case len(c.tokens) >= c.max:
		ev.Finish = FinishLength
	}
	if c.last.IsZero() {
		c.first = now
		e.observers.FirstToken(now.Sub(s.submit))
	} else {
		e.observers.NextToken(now.Sub(c.last))
	}
	c.last = now
	e.totals.generated++
	if ev.Finish != "" {
		e.conclude(c, ev)
		return nil
	}
	s.emit(ev)
	return e.force(c, now)
}

// An explainer is a Model that finds the reason for logits that are not finite.
type explainer interface{ Explain(error) error }

// next chooses a token. It computes log-probabilities first, from the unmodified logits.
func (e *Engine) next(c *choice, logits []float32) (Event, error) {
	s, r := c.stream, &c.stream.request
	id, err := e.draw(c, logits)
	if err == nil {
		err = c.accept(id)
	}
	if x, ok := e.model.(explainer); ok && errors.Is(err, sample.ErrNotFinite) {
		err = x.Explain(err)
	}
	ev := Event{Choice: c.index, Token: id}
	if err == nil && r.LogProbs {
		ev.LogProb, ev.Top, err = e.samplers.first.LogProbs(s.top(r.TopLogProbs), logits, id, r.TopLogProbs)
	}
	return ev, err
}
