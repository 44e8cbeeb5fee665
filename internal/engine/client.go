package engine

import (
	"slices"
	"time"
)

// A client is the submitter of requests under one name. Places in the batch are assigned in turn
// to the client with the fewest running choices, and among equals to the one that was served
// longest ago. A client that has waited clientWait for its first place gets one from a client that
// has several.
type client struct {
	name string
	open int // choices that have not ended; guarded by engine.mu

	// Used only by the engine's goroutine.
	running int
	served  uint64 // counter value when it last got a place
}

// newClientShare is the part of the queue, 1/newClientShare, that is reserved beyond the queue for
// clients that have nothing in it.
const newClientShare = 16

// clientWait is how long a client without a running choice waits before another one loses a place
// to it. Waiting avoids recomputing tokens.
const clientWait = 2 * time.Second

// clientOf returns the client called name. The caller holds mu.
func (e *Engine) clientOf(name string) *client {
	c := e.clients[name]
	if c == nil {
		c = &client{name: name}
		e.clients[name] = c
	}
	return c
}

// clientName returns the name of a request's client. Background requests count as another client,
// so that they take no turns from its others.
func (r *Request) clientName() string {
	if r.Background {
		return "background\x00" + r.Client
	}
	return r.Client
}

// full reports whether a request of c is too many. A client with no request here may exceed a
// full queue a little, so that another client's hundreds of requests do not keep it out. The
// caller holds mu.
func (e *Engine) full(c *client, background bool) bool {
	if background {
		return e.open >= e.Places()
	}
	open := e.open - e.background // requests that precede c's
	if c.open == 0 && c.name != "" && e.options.MaxQueue > 0 {
		return open >= e.Places()+max(e.options.MaxQueue/newClientShare, 1)
	}
	return open >= e.Places()
}

// left records that n choices of c have ended. The caller holds mu.
func (e *Engine) left(c *client, n int) {
	if c.open -= n; c.open == 0 {
		delete(e.clients, c.name)
	}
}

// nextWaiting returns the index of the waiting choice that gets the next place, or -1. Choices of
// clients that are starved come first, then those that lost a place, and those of background
// requests last.
func (e *Engine) nextWaiting() int {
	if len(e.waiting) == 0 {
		return -1
	}
	best, now := -1, time.Now()
	for i, c := range e.waiting {
		if c.startable() && (best < 0 || c.before(e.waiting[best], now)) {
			best = i
		}
	}
	return best
}

// startable reports whether a waiting choice only lacks a place and pages.
func (c *choice) startable() bool {
	return !c.ended && !c.noAdapterRoom && !c.stream.stalled.Load() && !c.follows()
}

// starved reports whether the client of c has nothing in the batch and has waited clientWait.
func (c *choice) starved(now time.Time) bool {
	return c.stream.client.running == 0 && !c.stream.request.Background && now.Sub(c.since) >= clientWait
}

// mayPreempt reports whether a waiting choice is starved and preemptFor can take a place from
// another client.
func (e *Engine) mayPreempt() bool {
	if len(e.waiting) == 0 || e.largestClient() < 0 {
		return false
	}
	now := time.Now()
	return slices.ContainsFunc(e.waiting, func(c *choice) bool { return c.starved(now) && c.startable() })
}

// preemptFor preempts the youngest choice of the client with the most running choices for c, if c
// is starved. It reports whether it did.
func (e *Engine) preemptFor(c *choice) bool {
	i := e.largestClient()
	if i < 0 || !c.starved(time.Now()) {
		return false
	}
	e.returnToQueue(e.running[i])
	e.running = slices.Delete(e.running, i, i+1)
	return true
}

// largestClient returns the index of the youngest running choice of the client that has the most,
// or -1 if no client has two.
func (e *Engine) largestClient() int {
	best, most := -1, 2
	for i, c := range e.running {
		if n := c.stream.client.running; c.seq != nil && n >= most {
			best, most = i, n
		}
	}
	return best
}

// before reports whether c gets a place before other, which arrived earlier.
func (c *choice) before(other *choice, now time.Time) bool {
	if a, b := c.stream.request.Background, other.stream.request.Background; a != b {
		return b
	}
	if a, b := c.starved(now), other.starved(now); a != b {
		return a
	}
	if a, b := c.wasPreempted(), other.wasPreempted(); a || b {
		return a && !b
	}
	a, b := c.stream.client, other.stream.client
	if a.running != b.running {
		return a.running < b.running
	}
	return a.served < b.served
}

// wasPreempted reports whether c has lost a place to others.
func (c *choice) wasPreempted() bool { return !c.admitted.IsZero() && !c.parked }

// countPlace records that c has a place.
func (e *Engine) countPlace(c *choice) {
	e.places++
	c.stream.client.running++
	c.stream.client.served = e.places
}
