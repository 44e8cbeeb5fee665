package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// admit moves waiting choices into the batch until no slot or no page is free. Clients take
// turns; the choices of one client start in order of arrival. To make room, choices of stalled
// streams lose their slots and pages first, then choices of background requests, then choices of
// clients with several, for a client that has waited for its first.
func (e *Engine) admit() {
	if e.adapterRoom.Swap(false) {
		e.freed = true
	}
	if e.blocked && !e.freed && !e.makesRoom() {
		return // nothing became free since the last failure
	}
	if e.freed {
		for _, c := range e.waiting {
			c.noAdapterRoom = false
		}
	}
	e.blocked, e.freed = false, false
	for {
		full := len(e.running) >= e.options.MaxBatch
		if full && !e.makesRoom() {
			return
		}
		i := e.nextWaiting()
		if i < 0 {
			return
		}
		c := e.waiting[i]
		if full {
			if !e.roomFor(c) {
				return
			}
			continue // the preempted choice is now in the list
		}
		err := e.start(c)
		if e.waits(err) { // choices that end will make room
			if e.roomFor(c) {
				continue
			}
			if errors.Is(err, ErrAdaptersFull) {
				c.noAdapterRoom, c.queues = true, e.sharing // choices without adapters, or with a loaded one, may still start
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

// start creates a sequence for c. It reserves pages for all of its tokens, unless its prefix has
// to be read first.
func (e *Engine) start(c *choice) error {
	seq, err := e.sequence(c)
	if err != nil {
		return err
	}
	c.seq, c.queues, c.parked = seq, false, false
	if !e.restore(c) {
		if err := e.attach(c); err != nil {
			c.seq.Free()
			c.seq = nil
			return err
		}
	}
	e.countPlace(c)
	if c.admitted.IsZero() {
		c.admitted = time.Now()
		c.queued = c.admitted.Sub(c.stream.submit)
		e.observers.Queued(c.queued)
	}
	return nil
}

// insert inserts c into a list in order of arrival.
func (e *Engine) insert(list *[]*choice, c *choice) {
	i := len(*list)
	for i > 0 && (*list)[i-1].ticket > c.ticket {
		i--
	}
	*list = slices.Insert(*list, i, c)
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

// makesRoom reports whether a running choice may be preempted for a waiting one.
func (e *Engine) makesRoom() bool { return e.stalled() >= 0 || e.mayYield() || e.mayPreempt() }

// roomFor preempts a running choice for c. It returns false if c has to wait until a choice ends.
func (e *Engine) roomFor(c *choice) bool { return e.park() || e.yield(c) || e.preemptFor(c) }

// park preempts a running choice of a stalled stream. It returns false if there is none.
func (e *Engine) park() bool {
	i := e.stalled()
	if i < 0 {
		return false
	}
	e.setAside(e.running[i])
	e.running = slices.Delete(e.running, i, i+1)
	return true
}

// setAside frees the pages of a choice whose stream is stalled. When its reader continues, the
// choice queues like a new request; otherwise many slow readers would precede all new requests.
// The caller removes it from the running choices.
func (e *Engine) setAside(c *choice) {
	c.parked = true
	e.number(c)
	e.returnToQueue(c)
}

// mayYield reports whether the youngest running choice belongs to a background request and the
// first waiting one does not.
func (e *Engine) mayYield() bool {
	return len(e.waiting) > 0 && len(e.running) > 0 && !e.waiting[0].stream.request.Background &&
		e.running[len(e.running)-1].stream.request.Background
}

// yield preempts the youngest running choice for c, if it belongs to a background request and c
// does not. It reports whether it did.
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

// preempt moves c, the last of the running choices, to the waiting ones. c keeps its tokens but
// not its pages.
func (e *Engine) preempt(c *choice) {
	e.running = e.running[:len(e.running)-1]
	if c.seq != nil {
		e.returnToQueue(c)
	}
}

// returnToQueue frees the pages of c and adds it to the waiting choices. The caller removes it from
// the running ones.
func (e *Engine) returnToQueue(c *choice) {
	e.free(c)
	c.chunk, c.since = 0, time.Now()
	e.insert(&e.waiting, c)
	e.totals.preemptions++
}
