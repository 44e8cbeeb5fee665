package engine

import (
	"errors"
	"slices"
)

// Adapting is what a Model may be beside: one whose sequences can go through adapters.
type Adapting interface {
	// NewAdaptedSequence is NewSequence for the adapter called name. An error is of a name
	// that the model does not know.
	NewAdaptedSequence(promptLen int, name string) (Sequence, error)
}

var errNoAdapters = errors.New("the model has no adapters")

// sequence makes the sequence of c: that of its request's adapter, if it names one.
func (e *Engine) sequence(c *choice) (Sequence, error) {
	name := c.stream.request.Adapter
	if name == "" {
		return e.model.NewSequence(c.prompt), nil
	}
	m, ok := e.model.(Adapting)
	if !ok {
		return nil, errNoAdapters
	}
	return m.NewAdaptedSequence(c.prompt, name)
}

// adapters are the adapters that choices of a list use: before itself where they are the
// same, so that steps allocate nothing.
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
