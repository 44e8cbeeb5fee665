package engine

// Vocab returns the number of token ids. Ids of requests must be below it.
func (e *Engine) Vocab() int { return e.vocab }

// Draining reports whether Shutdown or Close was called: new requests are rejected.
func (e *Engine) Draining() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.draining || e.closed
}
