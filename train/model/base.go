package model

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// mover reads the frozen parameters of all models of the process. arena is the memory that they
// use.
var (
	mover residency.Mover
	arena = hostmem.Arena{Ledger: new(hostmem.Ledger)}
)

// base holds the frozen parameters of a model in a residency.Store, as serving holds its weights.
// Passes use it one at a time, each from hold to leave.
type base struct {
	meta    *meta.Model
	program *nn.Program
	binding *loader.Binding
	frozen  map[*meta.Param]bool
	stacks  map[*meta.Module]bool // stacks of experts with frozen parameters
	place   placement
	head    string // path of a head that no pass reads, or empty
	// converter converts the matrices of converted, which maps them to their converted sizes. It is
	// nil if there are none.
	converter backend.Converter
	converted map[*meta.Param]int64

	mu    sync.Mutex // held by the pass that uses the store
	store *residency.Store
	plan  plan
	read  int64 // bytes that closed stores have read
}

// newBase finds the frozen parameters in a checkpoint. It reads no weights.
func newBase(m *meta.Model, p *nn.Program, binding *loader.Binding, frozen map[*meta.Param]bool, o options) (*base, error) {
	b := &base{meta: m, program: p, binding: binding, frozen: frozen, place: o.place}
	if o.headless {
		b.leaveHead()
	}
	if o.quantize != meta.QuantNone {
		if err := b.quantise(o.quantize); err != nil {
			return nil, err
		}
	}
	b.findStacks()
	return b, b.open()
}

// findStacks finds the stacks of experts with frozen parameters.
func (b *base) findStacks() {
	b.stacks = map[*meta.Module]bool{}
	for _, u := range b.program.Units {
		for _, n := range u.Experts {
			for _, q := range n.Module.Params {
				b.stacks[n.Module] = b.stacks[n.Module] || b.frozen[q.Resolve()]
			}
		}
	}
}

// open creates the store if there is none. The caller must hold mu.
func (b *base) open() (err error) {
	if b.store == nil {
		b.store, b.plan, err = b.place.open(b)
	}
	return err
}

// newStore creates a store with the given map. window is the memory in bytes that units stream
// through; 0 lets the store choose.
func (b *base) newStore(devices devicemap.Map, window int64) (*residency.Store, error) {
	s, err := residency.New(b.meta.Root, b.storeUnits(), b.binding, devices, residency.Options{
		Arena: &arena, Mover: &mover, WholeStacks: true, UnitWindow: window,
		Converter: b.converter, Converted: b.converted,
		Skip: func(p *meta.Param) bool { return !b.frozen[p] }})
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return s, nil
}

// quantise chooses the frozen matrices to convert.
func (b *base) quantise(format meta.QuantFormat) (err error) {
	if b.place.set() {
		return fmt.Errorf("model: weights that are converted to %v stay in memory: omit MaxMemory and DeviceMap", format)
	}
	switch {
	case format == meta.QuantBnbNF4:
		b.converter, err = cpu.NewFourBits(runtime.GOMAXPROCS(0))
		b.converted = b.meta.Root.FourBits()
	case format.Row().Convert:
		b.converter, err = cpu.NewConverter(format, runtime.GOMAXPROCS(0), "")
		b.converted = b.meta.Root.LoadedBytes(format, true)
	default:
		return fmt.Errorf("model: Quantize: got %v (%d), want QuantQ8, QuantQ4 or QuantBnbNF4", format, format)
	}
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	for p := range b.converted {
		if !b.frozen[p] {
			delete(b.converted, p)
		}
	}
	if len(b.converted) == 0 {
		return fmt.Errorf("model: no frozen weights can be converted to %v: they are quantised already, or the length of their rows is not a multiple of %d", format, meta.ConvertColumns())
	}
	return nil
}

// leaveHead leaves the model's head out of the base. A head that is tied to other weights stays
// with them.
func (b *base) leaveHead() {
	spec, ok := b.meta.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return
	}
	b.head, b.frozen = spec.Head, maps.Clone(b.frozen)
	uses := map[*meta.Param]int{}
	for _, q := range b.meta.Root.AllParams() {
		uses[q.Resolve()]++
	}
	for _, m := range b.meta.Root.Find(b.head).Walk() {
		for _, q := range m.Params {
			if uses[q.Resolve()] == 1 {
				delete(b.frozen, q)
			}
		}
	}
}

// checkHead returns an error if passes have no head.
func (b *base) checkHead() error {
	if b != nil && b.head != "" {
		return errors.New("model: the model was loaded with WithoutHead, so it has no logits")
	}
	return nil
}

// modules returns the subtrees whose parameters a unit reads.
func (b *base) modules(u *nn.Unit) []nn.Node {
	return slices.DeleteFunc(slices.Clone(u.Modules), func(n nn.Node) bool { return b.head != "" && n.Path == b.head })
}

// storeUnits converts the program's units to units of package residency.
func (b *base) storeUnits() []residency.Unit {
	nodes := func(list []nn.Node) (out []residency.Node) {
		for _, n := range list {
			out = append(out, residency.Node(n))
		}
		return out
	}
	var out []residency.Unit
	for _, u := range b.program.Units {
		out = append(out, residency.Unit{Path: u.Path, Modules: nodes(b.modules(u)), Experts: nodes(u.Experts)})
	}
	return out
}

// streams reports whether frozen parameters move between units.
func (b *base) streams() bool { return b != nil && b.place.set() }

// expect announces the order of the units in the next pass.
func (b *base) expect(units []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(); err != nil {
		return err
	}
	b.store.Order(units)
	return nil
}

// packed returns the bytes reserved for packed weights of a unit.
func (b *base) packed() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plan.packed
}

// close frees the store's memory. The next pass opens it again.
func (b *base) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.store != nil {
		b.read += b.store.ReadBytes()
		b.store.Close()
		b.store = nil
	}
}

// sweep is one pass's use of a base. The zero value uses none.
type sweep struct {
	base *base
	unit int // 1 + the acquired unit, 0 for none
}

// hold acquires unit i and releases the previous one. next is the unit after i, or -1.
func (s *sweep) hold(i, next int) error {
	b := s.base
	if b == nil || s.unit == i+1 {
		return nil
	}
	if s.unit == 0 {
		b.mu.Lock()
		if err := b.open(); err != nil {
			b.mu.Unlock()
			return err
		}
	} else {
		b.store.Release()
	}
	s.unit = i + 1
	if err := b.store.Acquire(i); err != nil {
		s.unit = 0
		b.mu.Unlock()
		return err
	}
	if next >= 0 {
		b.store.Expect(next)
	}
	return nil
}

// leave releases the acquired unit.
func (s *sweep) leave() {
	if s.unit == 0 {
		return
	}
	s.unit = 0
	s.base.store.Release()
	s.base.mu.Unlock()
}

// parts returns the pieces of a frozen parameter of the acquired unit.
func (s *sweep) parts(p *meta.Param, expert int) []backend.Part {
	if s.unit == 0 {
		return nil
	}
	return s.base.store.Parts(p, expert)
}

// err returns why parts has returned nil.
func (s *sweep) err() error {
	if s.unit == 0 {
		return nil
	}
	return s.base.store.Err()
}

// holdExperts loads experts of m. They stay until the unit is released.
func (s *sweep) holdExperts(m *meta.Module, experts []int32) (int, error) {
	if s.unit == 0 || !s.base.stacks[m] {
		return len(experts), nil
	}
	return s.base.store.HoldExperts(m, experts)
}

// FrozenMemory describes where the parameters frozen by [Freeze] are, in bytes.
type FrozenMemory struct {
	Limit    int64 // of MaxMemory; 0 for none
	Minimum  int64 // the minimum memory; more than Limit if that is too low
	Resident int64 // of the parameters that stay in memory
	Streamed int64 // of those read from disk in each sweep
	Staging  int64 // memory that they are read into
	Packed   int64 // memory of [PackOnce]
	Read     int64 // bytes read from disk so far
}

// FrozenMemory returns where the frozen parameters are. It waits for a pass that uses them.
func (m *Model) FrozenMemory() FrozenMemory {
	b := m.base
	if b == nil {
		return FrozenMemory{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := FrozenMemory{Limit: b.place.limit, Minimum: b.plan.minimum, Packed: b.plan.packed, Read: b.read}
	if b.store != nil {
		tiers := b.store.Stats().TierBytes
		out.Resident, out.Streamed = tiers[devicemap.CPU], tiers[devicemap.Disk]
		out.Staging = b.store.Staging()
		out.Read += b.store.ReadBytes()
	}
	return out
}
