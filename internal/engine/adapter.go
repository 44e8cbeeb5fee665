package engine

import (
	"errors"
	"slices"
)

// Adapting is implemented by a Model whose sequences can use adapters.
type Adapting interface {
	// Adapted finds the adapter called name. It fails if the model has none of that name. Any goroutine
	// may call it.
	Adapted(name string) (NewSequence, error)
}

// A NewSequence makes sequences with one adapter, even after another one took its name. It is used like
// Model.NewSequence, and returns ErrAdaptersFull while the adapter has no room.
type NewSequence func(promptLen int) (Sequence, error)

// An adapterWaiter is a Model that shares the memory of adapters with other models.
type adapterWaiter interface {
	// NotifyAdapters sets a function that may be called, from any goroutine, when there may be
	// room for an adapter after a NewSequence has returned ErrAdaptersFull.
	NotifyAdapters(call func())
	// StopWaiting tells the model that no choice waits for the adapter any more. Until then other
	// adapters may be delayed for it.
	StopWaiting(name string)
}

// followAdapters retries choices that wait for room for an adapter when other models free some.
func (e *Engine) followAdapters() {
	if m, ok := e.model.(adapterWaiter); ok {
		e.sharing = true
		m.NotifyAdapters(func() {
			e.adapterRoom.Store(true)
			e.wakeUp()
		})
	}
}

// waits reports whether a choice that failed to start with err waits for memory that others use.
func (e *Engine) waits(err error) bool {
	if errors.Is(err, ErrAdaptersFull) && e.sharing {
		return true
	}
	return (errors.Is(err, ErrKVFull) || errors.Is(err, ErrAdaptersFull)) && len(e.running) > 0
}

// stopWaiting tells the model that c, which has ended or has its adapter, no longer waits for it.
// Another choice may.
func (e *Engine) stopWaiting(c *choice) {
	if !c.queues {
		return
	}
	c.queues = false
	name := c.stream.request.Adapter
	if slices.ContainsFunc(e.waiting, func(other *choice) bool { return other.queues && other.stream.request.Adapter == name }) {
		return
	}
	e.model.(adapterWaiter).StopWaiting(name)
}

var errNoAdapters = errors.New("the model has no adapters")

// salting is implemented by sequences that share cached prefixes.
type salting interface {
	// Salt restricts sharing to sequences of equal salt. The sequence must be empty.
	Salt(salt string)
}

// sequence creates the sequence of c, with the adapter and the salt of its request.
func (e *Engine) sequence(c *choice) (Sequence, error) {
	seq, err := e.unsalted(c)
	if s, ok := seq.(salting); ok && err == nil && c.stream.request.Salt != "" {
		s.Salt(c.stream.request.Salt)
	}
	return seq, err
}

func (e *Engine) unsalted(c *choice) (Sequence, error) {
	if adapted := c.stream.request.Adapted; adapted != nil {
		return adapted(c.prompt)
	}
	return e.model.NewSequence(c.prompt), nil
}

// Adapted finds an adapter for Request.Adapted. It fails if the model has none of that name.
func (e *Engine) Adapted(name string) (NewSequence, error) {
	m, ok := e.model.(Adapting)
	if !ok {
		return nil, errNoAdapters
	}
	return m.Adapted(name)
}

// adapters returns the names of the adapters that the choices in list use. If they equal before,
// it returns before, so that a step does not allocate.
func (e *Engine) adapters(list []*choice, before []string) []string {
	e.names = e.names[:0]
	for _, c := range list {
		name := c.stream.request.Adapter
		if name == "" {
			continue
		}
		if i, found := slices.BinarySearch(e.names, name); !found {
			e.names = slices.Insert(e.names, i, name)
		}
	}
	if slices.Equal(e.names, before) {
		return before
	}
	return slices.Clone(e.names)
}
