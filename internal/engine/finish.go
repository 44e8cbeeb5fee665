package engine

import (
	"slices"
)

// reap removes choices that have ended. It also ends those whose client disconnected, whose text
// is complete, or that generate nothing.
func (e *Engine) reap() {
	e.running = slices.DeleteFunc(e.running, e.reaped)
	n := len(e.waiting)
	e.waiting = slices.DeleteFunc(e.waiting, e.reaped)
	if len(e.waiting) < n {
		e.blocked = false // the next one may fit where the removed one did not
	}
}

// reaped reports whether c has ended, and ends it if it has to.
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

// complete ends c by length, without another token.
func (e *Engine) complete(c *choice) {
	ev := Event{Choice: c.index, Token: NoToken, Finish: FinishLength}
	if c.index == 0 && c.generated() == 0 {
		ev.Prompt = c.stream.scores
	}
	e.conclude(c, ev)
}

// conclude emits c's last event and ends c. It frees c's slot first, so that it is free when the
// client sends its next request.
func (e *Engine) conclude(c *choice, ev Event) {
	e.release(c, ev.Finish)
	c.stream.emit(ev)
	c.stream.left(nil)
}

// end ends c without a last event. The caller removes c from its list.
func (e *Engine) end(c *choice, why Reason, err error) {
	if c.ended {
		return
	}
	e.release(c, why)
	c.stream.left(err)
}

// release frees the pages of a choice that ends, and counts it.
func (e *Engine) release(c *choice, why Reason) {
	c.ended = true
	if c.seq != nil {
		e.free(c)
	}
	e.stopWaiting(c)
	e.drafter.noteLength(c.generated())
	e.account(c, why)
}

// free frees c's pages.
func (e *Engine) free(c *choice) {
	c.seq.Free()
	c.seq, c.restoring = nil, nil
	e.forget(c)
	c.stream.client.running--
	e.freed = true
}

// fail ends all choices of a request. The next reap removes them from their lists.
func (e *Engine) fail(s *Stream, err error) {
	for i := range s.choices {
		e.end(&s.choices[i], FinishError, err)
	}
}
