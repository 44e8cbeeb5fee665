package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// reap removes choices whose client disconnected or whose text is complete, and ends those that
// generate nothing.
func (e *Engine) reap() {
	e.running = slices.DeleteFunc(e.running, e.reaped)
	n := len(e.waiting)
	e.waiting = slices.DeleteFunc(e.waiting, e.reaped)
	if len(e.waiting) < n {
		e.blocked = false // another may fit where the one that left did not
	}
}

func (e *Engine) reaped(c *choice) bool {
	switch {
	case c.ended:
	case c.stopped.Load():
		e.end(c, FinishStop, nil)
	case c.stream.canceled.Load():
		e.end(c, FinishAbort, ErrStopped)
	case c.seq == nil && c.max == c.prompt && c.scored == c.prompt && c.stream.request.Embed == PoolNone:
		e.complete(c)
	default:
		return false
	}
	return true
}

// complete ends c by length without a further token.
func (e *Engine) complete(c *choice) {
	ev := Event{Choice: c.index, Token: NoToken, Finish: FinishLength}
	if c.index == 0 && c.generated() == 0 {
		ev.Prompt = c.stream.scores
	}
	e.conclude(c, ev)
}

// conclude emits c's last event and ends c. It frees the place first, so that a client that sends
// its next request at once finds it.
func (e *Engine) conclude(c *choice, ev Event) {
	e.release(c, ev.Finish)
	c.stream.emit(ev)
	c.stream.left(nil)
}

// end ends c without a last event. The caller takes c out of its list.
func (e *Engine) end(c *choice, why Reason, err error) {
	if c.ended {
		return
	}
	e.release(c, why)
	c.stream.left(err)
}

// release frees the pages of c.
func (e *Engine) release(c *choice, why Reason) {
	c.ended = true
	if c.seq != nil {
		e.free(c)
	}
	e.stopWaiting(c)
	e.drafter.noteLength(c.generated())
	e.account(c, why)
}

// free releases c's pages.
func (e *Engine) free(c *choice) {
	c.seq.Free()
	c.seq, c.restoring = nil, nil
	e.forget(c)
	c.stream.client.running--
	e.freed = true
}

// admit moves waiting choices into the batch until no slot or no page is free: clients take turns, and each one's
// choices come in order of arrival. Choices of stalled streams give their slots and pages up first.
func (e *Engine) admit() {
	if e.adapterRoom.Swap(false) {
		e.freed = true
	}
	if e.blocked && !e.freed && e.stalled() < 0 && !e.mayYield() {
		return // what did not fit before does not fit now
	}
	if e.freed {
		for _, c := range e.waiting {
			c.lacks = false
		}
	}
	e.blocked, e.freed = false, false
	for {
		full := len(e.running) >= e.options.MaxBatch
		if full && e.stalled() < 0 && !e.mayYield() {
			return
		}
		i := e.nextWaiting()
		if i < 0 {
			return
		}
		c := e.waiting[i]
		if full {
			if !e.park() && !e.yield(c) {
				return
			}
			continue // the parked choice is in the list
		}
		err := e.start(c)
		if e.waits(err) { // choices that end make room
			if e.park() || e.yield(c) {
				continue
			}
			if errors.Is(err, ErrAdaptersFull) {
				c.lacks, c.queues = true, e.sharing // others with adapters that are in memory, and without any, go on
				continue
			}
			e.blocked, e.freed = true, false
			return
		}
		e.waiting = slices.Delete(e.waiting, i, i+1)
		if err != nil {
			e.fail(c.stream, fmt.Errorf("engine: prompt of %d tokens: %w", c.prompt, err))
			continue
		}
		e.insert(&e.running, c)
	}
}

// stalled returns the index of the youngest running choice whose stream is stalled, or -1.
func (e *Engine) stalled() int {
	for i := len(e.running) - 1; i >= 0; i-- {
		if c := e.running[i]; c.seq != nil && c.stream.stalled.Load() {
			return i
		}
	}
	return -1
}

// park sends a running choice of a stalled stream back to wait. It returns false if there is none.
func (e *Engine) park() bool {
	i := e.stalled()
	if i < 0 {
		return false
	}
	c := e.running[i]
	e.running = slices.Delete(e.running, i, i+1)
	e.unseat(c)
	return true
}

// mayYield reports whether the first waiting choice may take the place of the youngest running one.
func (e *Engine) mayYield() bool {
	return len(e.waiting) > 0 && len(e.running) > 0 && !e.waiting[0].stream.request.Background &&
		e.running[len(e.running)-1].stream.request.Background
}

// yield sends the youngest running choice back to wait, if it is of a background request and c is not. It
// returns false otherwise.
func (e *Engine) yield(c *choice) bool {
	if len(e.running) == 0 || c.stream.request.Background {
		return false
	}
	youngest := e.running[len(e.running)-1]
	if !youngest.stream.request.Background {
		return false
	}
	e.preempt(youngest)
	return true
}

// insert keeps a list in order of arrival.
func (e *Engine) insert(list *[]*choice, c *choice) {
	i := len(*list)
	for i > 0 && (*list)[i-1].ticket > c.ticket {
		i--
	}
	*list = slices.Insert(*list, i, c)
}

// start gives c a sequence, and pages for all its tokens unless its prefix has to be read first.
func (e *Engine) start(c *choice) error {
	seq, err := e.sequence(c)
	if err != nil {
		return err
	}
	c.seq, c.queues = seq, false
	if !e.restore(c) {
		if err := e.attach(c); err != nil {
			c.seq.Free()
			c.seq = nil
			return err
		}
	}
	e.seated(c)
	if c.admitted.IsZero() {
		c.admitted = time.Now()
		c.queued = c.admitted.Sub(c.stream.submit)
		e.observers.Queued(c.queued)
	}
	return nil
}

// plan decides which tokens the next pass computes, and reports whether there are any.
func (e *Engine) plan() bool {
	e.prompts, e.planned, e.rows = e.prompts[:0], e.planned[:0], e.rows[:0]
	e.drafter.room = orAny(e.model.Limits().States)
	decoding, logitRows := 0, max(e.options.MaxLogitRows-(len(e.running)-1), 1) // one for each other
	for i := 0; i < len(e.running); i++ {                                       // room may shorten the list from its end
		c := e.running[i]
		c.chunk, c.decodes = 0, false
		c.noGuess()
		if c.seq == nil || c.restoring != nil || c.stream.stalled.Load() {
			continue
		}
		c.most = c.pending()
		switch {
		case c.most == 1:
			if e.room(c, 1) {
				c.chunk = 1
				decoding++
			}
			continue
		case c.scored < c.prompt:
			c.most = min(c.most, logitRows)
			logitRows -= c.most
		case c.seq.Len() >= c.prompt && c.most <= maxForced+1:
			if n := e.together(c, min(c.most, logitRows, e.options.MaxBatchTokens-decoding-len(e.running))); e.room(c, n) {
				c.chunk, c.decodes = n, true
				decoding += n
				logitRows -= n - 1
			}
			continue
		case c.unscored > 0 && c.seq.Len() < len(c.tokens)-c.unscored-1:
			c.most = len(c.tokens) - c.unscored - 1 - c.seq.Len()
		case c.unscored > 0:
			c.most = min(c.most, logitRows)
			logitRows -= c.most
		}
		e.prompts = append(e.prompts, c)
	}
	if len(e.prompts) == 0 && e.options.DraftTokens >= 0 && !e.options.OneByOne {
		e.guess(decoding, logitRows-1)
	}
	budget := min(e.options.MaxBatchTokens, orAny(e.model.Limits().Tokens)) - decoding
	if decoding > 0 {
		budget = min(budget, e.options.ChunkTokens)
	}
	e.share(budget)
	for i := 0; i < len(e.running); i++ {
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

// share divides a budget among prompts: half to the oldest, so that none starves, and
// the rest to those with the least left, so that a short prompt does not wait for a
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

// shorter reports whether c's prompt gets room in a pass before that of d: the background's come last, and
// else the one with the least left comes first.
func (c *choice) shorter(d *choice) bool {
	if a, b := c.stream.request.Background, d.stream.request.Background; a != b {
		return b
	}
	return c.most-c.chunk < d.most-d.chunk
}

// room makes sure of pages for n more tokens of c, at the cost of choices whose streams are
// stalled, then of younger ones. It is false if c cannot be in this step, or has ended. A stalled
// choice stays in the list of running ones, without a sequence, until the plan is made.
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
			e.unseat(e.running[i])
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

// preempt sends the last of the running back to wait; it keeps its tokens.
func (e *Engine) preempt(c *choice) {
	e.running = e.running[:len(e.running)-1]
	if c.seq != nil {
		e.unseat(c)
	}
}

// unseat frees the pages of c and lets it wait. Its caller takes it out of the running ones.
func (e *Engine) unseat(c *choice) {
	e.free(c)
	c.chunk = 0
	e.insert(&e.waiting, c)
	e.totals.preemptions++
}

// fail ends all choices of a request. They leave their lists when reap comes by.
func (e *Engine) fail(s *Stream, err error) {
	for i := range s.choices {
		e.end(&s.choices[i], FinishError, err)
	}
}
