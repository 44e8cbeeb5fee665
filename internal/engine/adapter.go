package engine

import (
	"errors"
	"slices"
)

// Adapting is implemented by a Model whose sequences can use adapters.
type Adapting interface {
	// NewAdaptedSequence is NewSequence with the adapter called name. It fails if the model has
	// no adapter of that name.
	NewAdaptedSequence(promptLen int, name string) (Sequence, error)
}

var errNoAdapters = errors.New("the model has no adapters")

// sequence makes the sequence of c, with the adapter of its request if there is one.
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

// adapters returns the names of the adapters that choices of a list use. If they are those of
// before it returns before, so that a step allocates nothing.
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
