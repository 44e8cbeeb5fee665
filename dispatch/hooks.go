package dispatch

import "github.com/heftai/heft/internal/nn"

// A Hook is called around each unit of a forward pass: the embedding, each block, the
// final norm with the head. It is Accelerate's ModelHook, with hidden states in place of
// arguments. Either function may be nil. Hooks run in the order in which they were added,
// on the goroutine that called Forward.
type Hook struct {
	Pre  func(*ModuleCall) // before the unit runs; its weights are present
	Post func(*ModuleCall) // after it has run, also where it failed
}

// A Pass is what a hook sees. It is valid during the call.
type ModuleCall struct {
	Path string // of the unit's (first) module
	// Hidden are the states between units, Rows rows of Width values; nil before the
	// embedding. A hook may change them.
	Hidden      []float32
	Rows, Width int
}

// AddHook adds a hook.
func (m *Model) AddHook(h Hook) { m.hooks = append(m.hooks, h) }

func (m *Model) before(u *nn.Unit) {
	for i := range m.hooks {
		if f := m.hooks[i].Pre; f != nil {
			f(m.look(u))
		}
	}
}

func (m *Model) after(u *nn.Unit) {
	for i := range m.hooks {
		if f := m.hooks[i].Post; f != nil {
			f(m.look(u))
		}
	}
}

func (m *Model) look(u *nn.Unit) *ModuleCall {
	h := m.run.Hidden()
	m.pass.hook = ModuleCall{Path: u.Path}
	if !h.IsZero() {
		m.pass.hook = ModuleCall{Path: u.Path, Hidden: h.F32()[:h.Elements()], Rows: h.Rows(), Width: h.Cols()}
	}
	return &m.pass.hook
}
