package dispatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/nn"
)

// A Hook is called before and after units of a forward pass: the embedding, each block, and the
// final norm with the head. It corresponds to Accelerate's ModelHook, with hidden states instead
// of arguments. Hooks run in the order in which they were added, on the goroutine that called
// Forward. An error ends the pass: Forward returns a [*HookError], and the sequences keep their
// state from before the pass.
type Hook struct {
	// Pre runs before a unit, whose weights are loaded. It may be nil.
	Pre func(*ModuleCall) error
	// Post runs after a unit, also if the unit or a Pre failed. It may be nil.
	Post func(*ModuleCall) error
	// Paths selects the units to call the hook for, by the path of their first module as in
	// [Model.Units]. nil selects all.
	Paths []string
}

// A ModuleCall is the argument of a hook. It is valid during the call.
type ModuleCall struct {
	Path string // of the unit's (first) module
	// Hidden holds the states between units: Rows rows of Width values. It is nil before the
	// embedding. A hook may change the values.
	Hidden      []float32
	Rows, Width int
}

// A HookError reports the unit whose hook failed.
type HookError struct {
	Path string // of the unit
	Err  error  // error that the hook returned
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

// Remove removes the hook. It may be called more than once. The hook itself may call it and is
// then not called again in that pass. Only the goroutine that uses the model may call it.
func (h *HookHandle) Remove() {
	m := h.model
	if i := slices.Index(m.hooks, h); i >= 0 {
		m.hooks = slices.Concat(m.hooks[:i], m.hooks[i+1:]) // a pass may be going through the old slice
	}
}

// AddHook adds a hook. It returns an error if the model has no unit with one of h.Paths.
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

// hooked runs a unit and its hooks. It returns the unit's error and the hooks' error separately.
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

// call calls one side of the hooks until one of them fails.
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

// look returns the argument of hooks. Hidden states of a device are copied; see writeBack.
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
