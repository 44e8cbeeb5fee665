package dispatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/nn"
)

// A Hook is called around the units of a forward pass: the embedding, each block, the final norm
// with the head. It is Accelerate's ModelHook, with hidden states in place of arguments. Hooks run
// in the order in which they were added, on the goroutine that called Forward. An error ends the
// pass: Forward returns a [*HookError], and the sequences hold what they held before.
type Hook struct {
	// Pre runs before a unit, whose weights are loaded. nil: nothing.
	Pre func(*ModuleCall) error
	// Post runs after it, also after a unit or a Pre that failed. nil: nothing.
	Post func(*ModuleCall) error
	// Paths are the units to be called for, by the path of their (first) module as in
	// [Model.Units]; nil: all.
	Paths []string
}

// A ModuleCall is what a hook sees. It is valid during the call.
type ModuleCall struct {
	Path string // of the unit's (first) module
	// Hidden are the states between units, Rows rows of Width values; nil before the
	// embedding. A hook may change them.
	Hidden      []float32
	Rows, Width int
}

// A HookError says which unit's hook failed.
type HookError struct {
	Path string // of the unit
	Err  error  // that the hook returned
}

// Error implements error.
func (e *HookError) Error() string { return fmt.Sprintf("dispatch: hook at %s: %v", e.Path, e.Err) }

// Unwrap returns the hook's error.
func (e *HookError) Unwrap() error { return e.Err }

// A HookHandle removes a hook.
type HookHandle struct {
	model *Model
	hook  Hook
}

// Remove removes the hook. It may be called more than once, and by the hook itself, which is then
// not called again in that pass. The goroutine that uses the model calls it.
func (h *HookHandle) Remove() {
	m := h.model
	if i := slices.Index(m.hooks, h); i >= 0 {
		m.hooks = slices.Concat(m.hooks[:i], m.hooks[i+1:]) // a pass may be going through the old slice
	}
}

// AddHook adds a hook. It fails if the model has no unit of one of h.Paths.
func (m *Model) AddHook(h Hook) (*HookHandle, error) {
	for _, path := range h.Paths {
		if !slices.Contains(m.Units(), path) {
			return nil, fmt.Errorf("dispatch: hook: no unit has the path %q", path)
		}
	}
	handle := &HookHandle{m, h}
	m.hooks = append(slices.Clip(m.hooks), handle)
	return handle, nil
}

// Units returns the paths at which hooks run, in the order of a pass.
func (m *Model) Units() []string {
	paths := make([]string, len(m.program.Units))
	for i, u := range m.program.Units {
		paths[i] = u.Path
	}
	return paths
}

// hooked runs a unit with the hooks around it. It tells the unit's error from the hooks'.
func (m *Model) hooked(u *nn.Unit, run *nn.Context) (unit, hook error) {
	if len(m.hooks) == 0 {
		if s := m.stationOf(run); s != nil && !s.weights.streaming {
			return u.Start(run), nil
		}
		return u.Run(run), nil
	}
	hook = m.call(u, run, func(h *Hook) func(*ModuleCall) error { return h.Pre })
	if hook == nil {
		unit = u.Run(run)
	}
	return unit, errors.Join(hook, m.call(u, run, func(h *Hook) func(*ModuleCall) error { return h.Post }))
}

// call calls one side of the hooks until one fails.
func (m *Model) call(u *nn.Unit, run *nn.Context, side func(*Hook) func(*ModuleCall) error) error {
	for _, h := range m.hooks {
		f := side(&h.hook)
		if f == nil || h.hook.Paths != nil && !slices.Contains(h.hook.Paths, u.Path) || !slices.Contains(m.hooks, h) {
			continue
		}
		seen, err := m.look(u, run)
		if err != nil {
			return err
		}
		if err := f(seen); err != nil {
			return &HookError{u.Path, err}
		}
		if err := m.writeBack(run); err != nil {
			return err
		}
	}
	return nil
}

// look returns what a hook sees. Hidden states of a device are a copy; see writeBack.
func (m *Model) look(u *nn.Unit, run *nn.Context) (*ModuleCall, error) {
	h := run.Hidden()
	m.pass.hook = ModuleCall{Path: u.Path}
	if !h.IsZero() {
		values, err := m.readAt(run, h, &m.stations.hidden)
		if err != nil {
			return nil, err
		}
		m.pass.hook = ModuleCall{Path: u.Path, Hidden: values[:h.Elements()], Rows: h.Rows(), Width: h.Cols()}
	}
	return &m.pass.hook, nil
}
