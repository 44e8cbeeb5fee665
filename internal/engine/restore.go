package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A choice whose prefix is read from a store has a place, but is in no pass until the read has
// ended; the others continue. It can be preempted like others, which cancels the read.

// lingering is the share of the last pass's duration, 1/lingering, for which the next pass waits
// for a choice whose prefix is being read. Without the wait its prompt may miss the pass and wait
// for long.
const lingering = 16

// restore starts to read what a store has of c's prompt. It returns false if there is nothing to
// wait for.
func (e *Engine) restore(c *choice) bool {
	s, ok := c.seq.(restorer)
	if !ok || !c.reuses() {
		return false
	}
	done := new(atomic.Bool)
	if !s.Restore(c.tokens[:c.prompt], func() {
		done.Store(true)
		select {
		case e.restored <- struct{}{}:
		default:
		}
		e.wakeUp()
	}) {
		return false
	}
	c.restoring, e.restoreStarted = done, true
	return true
}

// attach gives c the pages of its prefix, and pages for its other tokens and one more, so that a
// prompt, once begun, does not compete with choices that decode.
func (e *Engine) attach(c *choice) error {
	c.restoring = nil
	reused := 0
	if c.reuses() {
		reused = c.seq.Reuse(c.tokens[:c.prompt])
	}
	c.pooled = c.pooled[:0]
	if err := c.seq.Reserve(min(c.pending()+1, c.max-reused)); err != nil {
		return err
	}
	if !c.attached {
		c.attached, c.reused = true, reused
		if c.index == 0 {
			c.stream.cached.Store(int64(reused))
		}
	}
	return nil
}

// attachRestored attaches the prefixes that were read. If there are too few pages now, a choice
// waits again.
func (e *Engine) attachRestored() {
	for i := 0; i < len(e.running); i++ {
		c := e.running[i]
		if c.restoring == nil || !c.restoring.Load() {
			continue
		}
		err := e.attach(c)
		switch {
		case err == nil:
		case errors.Is(err, ErrKVFull):
			e.running = slices.Delete(e.running, i, i+1)
			e.returnToQueue(c)
			i--
		default:
			e.fail(c.stream, fmt.Errorf("engine: prompt of %d tokens: %w", c.prompt, err))
		}
	}
}

// waitForRestores waits a little for choices whose reads have started since the last pass, if the
// next pass has other choices.
func (e *Engine) waitForRestores() {
	if !e.restoreStarted {
		return
	}
	e.restoreStarted = false
	if !slices.ContainsFunc(e.running, func(c *choice) bool { return c.restoring == nil }) {
		return // the loop waits
	}
	timer := time.NewTimer(e.passed / lingering)
	defer timer.Stop()
	for {
		e.attachRestored()
		if !slices.ContainsFunc(e.running, func(c *choice) bool { return c.restoring != nil }) {
			return
		}
		select {
		case <-e.restored:
		case <-timer.C:
			return
		case <-e.ctx.Done():
			return
		}
	}
}
