package engine

// A client is the submitter of requests under one name. Places in the batch go round by client: the one with the
// fewest running choices is next, then the one that was served longest ago.
type client struct {
	name string
	open int // choices that have not ended; guarded by engine.mu

	// The engine's goroutine's own.
	running int
	served  uint64 // when it last got a place, by a counter of the engine
}

// newcomers is which part of the queue is kept, beyond the queue, for clients that have nothing in it.
const newcomers = 16

// clientOf returns the client of a name. The caller holds mu.
func (e *Engine) clientOf(name string) *client {
	c := e.clients[name]
	if c == nil {
		c = &client{name: name}
		e.clients[name] = c
	}
	return c
}

// clientName is the name of a request's client. Its background requests take no turns from its others.
func (r *Request) clientName() string {
	if r.Background {
		return "background\x00" + r.Client
	}
	return r.Client
}

// full reports whether a request of c is too many. A client with nothing here may exceed a full queue a little, so
// that another's hundreds of requests do not keep it out. The caller holds mu.
func (e *Engine) full(c *client, background bool) bool {
	if background {
		return e.open >= e.Places()
	}
	open := e.open - e.background // what comes before c's request
	if c.open == 0 && c.name != "" && e.options.MaxQueue > 0 {
		return open >= e.Places()+max(e.options.MaxQueue/newcomers, 1)
	}
	return open >= e.Places()
}

// left notes that n choices of c have ended. The caller holds mu.
func (e *Engine) left(c *client, n int) {
	if c.open -= n; c.open == 0 {
		delete(e.clients, c.name)
	}
}

// nextWaiting returns the index of the waiting choice that gets the next place, or -1. Choices that had a place already
// come first, those of background requests last.
func (e *Engine) nextWaiting() int {
	best := -1
	for i, c := range e.waiting {
		if c.ended || c.lacks || c.stream.stalled.Load() || c.follows() {
			continue
		}
		if best < 0 || c.before(e.waiting[best]) {
			best = i
		}
	}
	return best
}

// before reports whether c gets a place before other, which arrived earlier.
func (c *choice) before(other *choice) bool {
	if a, b := c.stream.request.Background, other.stream.request.Background; a != b {
		return b
	}
	if seated, otherSeated := !c.admitted.IsZero(), !other.admitted.IsZero(); seated || otherSeated {
		return seated && !otherSeated
	}
	a, b := c.stream.client, other.stream.client
	if a.running != b.running {
		return a.running < b.running
	}
	return a.served < b.served
}

// seated notes that c has a place.
func (e *Engine) seated(c *choice) {
	e.places++
	c.stream.client.running++
	c.stream.client.served = e.places
}
