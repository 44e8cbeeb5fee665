// Package accumulation counts the batches of an accumulation window. A [Rule] determines when a
// window ends. A [State] is the position of a training loop in its window. It follows the
// loaders, because the end of a loader may end a window.
package accumulation

import (
	"slices"

	"github.com/heftai/heft/train/data"
)

// Rule determines when a window ends.
type Rule struct {
	Steps int // batches in a window
	// WithLoader also ends a window at the end of the active loader.
	WithLoader bool
	// EachBatch averages the gradients over the ranks after every batch, not only at the end of a
	// window.
	EachBatch bool
}

// State is the position of a loop in its window. Loaders report their beginning and end to it. It
// must be used only by the goroutine of one rank.
type State struct {
	Step   int  // batches since the last end of a loader
	Window int  // batches since the last step
	Sync   bool // this batch ends its window
	Ended  bool // the previous batch ended its window: the next begins a window
	Cut    bool // the gradients of this window are already divided by Window

	loaders []data.LoaderState
}

var _ data.Observer = (*State)(nil)

// BeginLoader makes l the active loader until it ends or another one begins.
func (s *State) BeginLoader(l data.LoaderState) {
	s.EndLoader(l)
	s.loaders = append(s.loaders, l)
}

// EndLoader makes the loader that was active before l active again.
func (s *State) EndLoader(l data.LoaderState) {
	s.loaders = slices.DeleteFunc(s.loaders, func(x data.LoaderState) bool { return x == l })
}

// Active returns the loader that began last and has not ended, or nil. As in Accelerate, a loader
// whose loop was left by break has not ended.
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

// Remainder returns the active loader's Remainder, or -1 if no loader is active.
func (s *State) Remainder() int {
	if l := s.Active(); l != nil {
		return l.Remainder()
	}
	return -1
}

// Advance moves to the next batch.
func (s *State) Advance(r Rule) {
	if s.Ended {
		s.Window = 0
	}
	s.Window++
	s.Cut = false
	if r.WithLoader && s.AtEnd() {
		s.Step, s.Sync = 0, true
	} else {
		s.Step++
		s.Sync = s.Step%r.Steps == 0
	}
	s.Ended = s.Sync
}
