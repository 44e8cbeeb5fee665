package dispatch

import (
	"fmt"

	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/stored"
)

// An Adapter is a LoRA adapter in PEFT's file format. Its matrices are held in memory. The
// model's weights are not changed and may be on any tier and in any format.
type Adapter struct {
	Name string // for [Model.NewAdaptedSequence]
	Dir  string // the folder of adapter_config.json and adapter_model.safetensors
}

// Adapters returns the adapters that the model was opened with. Do not change the slice.
func (m *Model) Adapters() []Adapter { return m.options.Adapters }

// adapter is an adapter that is loaded. Sequences share cached keys and values only if their
// adapters have the same identity.
type adapter struct {
	name   string
	number uint64 // from 1 on
	// identity is set by bind. Sequences that share pages have the same identity.
	identity string
	bound    *nn.Adapter
	copies   []*nn.Adapter // one of each station

	// dir and the following fields are used only for adapters of AddAdapter; otherwise they are
	// zero.
	dir     string
	bytes   int64 // in memory
	users   int   // sequences
	used    uint64
	removed bool
}

// takeAdapters copies all adapters of the options to memory.
func (m *Model) takeAdapters() error {
	return m.settings.EachAdapter(m.skeleton, func(a placement.Adapter, from *lora.Adapter) error {
		if err := m.measure(from); err != nil {
			return err
		}
		bound, err := m.program.NewAdapter(m.backend, from)
		if err != nil {
			return err
		}
		number := uint64(len(m.adapters) + 1)
		held := &adapter{name: a.Name, number: number, identity: m.adapterIdentity(number, from), bound: bound}
		m.adapters = append(m.adapters, held)
		if err := m.run.Allow(bound); err != nil {
			return err
		}
		return m.copyAdapter(held, from)
	})
}

// copyAdapter copies an adapter from host memory to all GPUs.
func (m *Model) copyAdapter(a *adapter, from *lora.Adapter) error {
	for _, s := range m.stations.list {
		copied, err := m.program.NewAdapter(s.shared(), from)
		if err == nil {
			a.copies = append(a.copies, copied)
			err = s.run.Allow(copied)
		}
		if err != nil {
			return s.failed("", fmt.Errorf("memory for an adapter: %w", err))
		}
	}
	return nil
}

// shared returns memory of s that any goroutine may free.
func (s *station) shared() backend.Memory {
	if b, ok := s.backend.(backend.Sharer); ok {
		return b.Shared()
	}
	return s.backend
}

// close frees an adapter. No sequence may use it.
func (a *adapter) close() {
	if a.bound != nil {
		a.bound.Close()
	}
	for _, c := range a.copies {
		c.Close()
	}
	a.bound, a.copies = nil, nil
}

// measure computes the row norms by which DoRA divides its magnitudes. It reads the adapted
// weights once, from the checkpoint's mapping. The norms therefore do not depend on the format or
// the tier of the weights while serving.
func (m *Model) measure(from *lora.Adapter) error {
	for i := range from.Pairs {
		p := &from.Pairs[i]
		if p.Magnitude.IsZero() {
			continue
		}
		var pieces []backend.Part
		for _, t := range m.binding.Tensors(m.skeleton.Root.Find(p.Path).Param(p.Param).Resolve()) {
			piece := stored.New(t)
			part := piece.NewPart()
			if err := piece.InPlace(&part); err != nil {
				return err
			}
			pieces = append(pieces, part)
		}
		var err error
		if p.Squares, err = nn.Squares(m.backend, pieces, &p.Target); err != nil {
			return err
		}
		if p.Lengths, err = nn.Lengths(m.backend, pieces, p); err != nil {
			return err
		}
		p.Squares = nil
	}
	return nil
}

// NewAdaptedSequence returns an empty sequence whose tokens use the adapter called name, or no
// adapter if name is "". It returns [ErrNoAdapter] if neither [Options.Adapters] nor
// [Model.AddAdapter] has the name, and [ErrAdaptersFull] while there is no memory for the
// adapter. A sequence with an adapter of AddAdapter must not be used after [Sequence.Free].
func (m *Model) NewAdaptedSequence(name string) (*Sequence, error) {
	if m.closed.Load() {
		return nil, ErrClosed
	}
	a, err := m.Adapted(name)
	if err != nil {
		return nil, err
	}
	return a.NewSequence()
}

// An Adapted is a model with one of its adapters, or without.
type Adapted struct {
	model   *Model
	adapter *adapter
}

// Adapted returns the model with the adapter called name, or alone if name is "". Its sequences have that
// adapter also if they begin after [Model.RemoveAdapter], and after another one was added under the name.
// It takes no memory. It returns [ErrNoAdapter] for a name that neither [Options.Adapters] nor
// [Model.AddAdapter] has. Any goroutine may call it.
func (m *Model) Adapted(name string) (*Adapted, error) {
	if name == "" {
		return &Adapted{model: m}, nil
	}
	for _, a := range m.adapters {
		if a.name == name {
			return &Adapted{m, a}, nil
		}
	}
	if a := m.lora(name); a != nil {
		return &Adapted{m, a}, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNoAdapter, name)
}

// NewSequence is [Model.NewAdaptedSequence] for the adapter of a.
func (a *Adapted) NewSequence() (*Sequence, error) {
	m := a.model
	if m.closed.Load() {
		return nil, ErrClosed
	}
	if a.adapter != nil && a.adapter.dir != "" {
		if err := m.occupy(a.adapter); err != nil {
			return nil, err
		}
	}
	s := m.NewSequence()
	s.adapter = a.adapter
	return s, nil
}

// adapt sets the adapter of the next n tokens of the pass.
func (p *pass) adapt(s *Sequence, n int) {
	var bound *nn.Adapter
	if s.adapter != nil {
		bound = s.adapter.bound
		p.adapted = true
	}
	for range n {
		p.adapters, p.owners = append(p.adapters, bound), append(p.owners, s.adapter)
	}
}
