// Package accumulation knows where in an accumulation window a training loop is: [State] counts
// batches, and follows the loaders, since their end ends a window.
package accumulation

import (
	"slices"

	"github.com/heftai/heft/train/data"
)

// State is where the loop is. Loaders tell it when they begin and end. It belongs to the goroutine of
// one rank.
type State struct {
	Step   int  // batches since the last end of a loader
	Window int  // batches since the last step
	Sync   bool // this batch ends its window
	Ended  bool // the batch before did: the next begins a window
	Cut    bool // the gradients of this window are divided by Window already

	loaders []data.LoaderState
}

var _ data.Observer = (*State)(nil)

// BeginLoader makes l the active loader until it ends or another begins.
func (s *State) BeginLoader(l data.LoaderState) {
	s.EndLoader(l)
	s.loaders = append(s.loaders, l)
}

// EndLoader makes the loader that was active before l the active one again.
func (s *State) EndLoader(l data.LoaderState) {
	s.loaders = slices.DeleteFunc(s.loaders, func(x data.LoaderState) bool { return x == l })
}

// Active returns the loader begun last that has not ended, or nil. A loader that the loop broke out of
// has not ended: its flags go on to count, as in the reference.
func (s *State) Active() data.LoaderState {
	if len(s.loaders) == 0 {
		return nil
	}
	return s.loaders[len(s.loaders)-1]
}

// AtEnd reports whether the active loader is at its last batch.
func (s *State) AtEnd() bool {
	l := s.Active()
	return l != nil && l.EndOfDataloader()
}

// Remainder is that of the active loader, -1 if none is active.
func (s *State) Remainder() int {
	if l := s.Active(); l != nil {
		return l.Remainder()
	}
	return -1
}

// Advance goes on to the next batch. A window ends after steps batches or, withLoader, with the
// active loader.
func (s *State) Advance(steps int, withLoader bool) {
	if s.Ended {
		s.Window = 0
	}
	s.Window++
	s.Cut = false
	if withLoader && s.AtEnd() {
		s.Step, s.Sync = 0, true
	} else {
		s.Step++
		s.Sync = s.Step%steps == 0
	}
	s.Ended = s.Sync
}
