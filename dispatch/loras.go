package dispatch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/lora"
)

// ErrAdaptersFull says that sequences use adapters of as much memory as [Options].AdapterMemory allows. Free a
// sequence, or wait until another one is freed.
var ErrAdaptersFull = errors.New("dispatch: the memory for adapters is full of adapters in use")

// loras are the adapters of a model that come and go. Those in memory are also in Model.adapters, which
// only the goroutine that uses the model touches.
type loras struct {
	mu    sync.Mutex
	known map[string]*adapter
	last  uint64 // number of the newest one
	clock uint64 // counts uses
	held  int64  // bytes of the matrices of those in memory
	// scratch is what activations of adapters take: the most that one of those in memory needed.
	scratch int64
}

// firstLora is above the numbers of Options.Adapters.
const firstLora = 1 << 32

// AddAdapter makes an adapter known, beside those of Options.Adapters. It reads the folder to check that the adapter
// fits, and holds no memory: the first sequence that uses the adapter brings it to memory, within
// Options.AdapterMemory, and the one that was used least recently leaves for it. Sequences with the adapter give the
// bits that they give with Options.Adapters. It fails if the name is empty or taken, if the adapter does not fit the
// model, and if it alone needs more than Options.AdapterMemory. Any goroutine may call it.
func (m *Model) AddAdapter(a Adapter) error {
	taken := slices.ContainsFunc(m.options.Adapters, func(other Adapter) bool { return other.Name == a.Name })
	if a.Name == "" || taken {
		return fmt.Errorf("dispatch: adapter %q of %s: the name is empty or taken", a.Name, a.Dir)
	}
	bytes, scratch, err := m.loraBytes(a)
	if bytes += scratch; err == nil && bytes > m.options.AdapterMemory {
		err = fmt.Errorf("it needs %d bytes, the memory for adapters is %d bytes", bytes, m.options.AdapterMemory)
	}
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.Name, err)
	}
	l := &m.loras
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[a.Name] != nil {
		return fmt.Errorf("dispatch: adapter %q of %s: the name is empty or taken", a.Name, a.Dir)
	}
	if l.known == nil {
		l.known = map[string]*adapter{}
	}
	l.last++
	l.known[a.Name] = &adapter{name: a.Name, dir: a.Dir, number: firstLora + l.last}
	return nil
}

// RemoveAdapter forgets an adapter that AddAdapter made known. Sequences that use it go on; its memory is freed after
// the last of them. A later adapter of the same name shares no cached keys and values with it. It returns
// [ErrNoAdapter] for another name. Any goroutine may call it.
func (m *Model) RemoveAdapter(name string) error {
	l := &m.loras
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.known[name]
	if a == nil {
		return fmt.Errorf("%w: %q", ErrNoAdapter, name)
	}
	delete(l.known, name)
	a.removed = true
	return nil
}

// loraBytes is the memory that an adapter takes: its matrices, and activations.
func (m *Model) loraBytes(a Adapter) (bytes, scratch int64, err error) {
	from, err := lora.Open(a.Dir, m.skeleton.Root)
	if err != nil {
		return 0, 0, err
	}
	bound, err := m.program.NewAdapter(nil, from)
	if err != nil {
		return 0, 0, errors.Join(err, from.Close())
	}
	return heldBytes(from), pages(bound.AdapterBytes()), from.Close()
}

// heldBytes is what the matrices of an adapter take in memory, each in pages of its own.
func heldBytes(a *lora.Adapter) (n int64) {
	for i := range a.Pairs {
		n += pages(a.Pairs[i].A.Bytes()) + pages(a.Pairs[i].B.Bytes())
	}
	return n
}

// pages rounds n up to whole pages.
func pages(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) / page * page
}

// lora returns a known adapter for one more sequence, in memory; nil if the name is unknown.
func (m *Model) lora(name string) (*adapter, error) {
	l := &m.loras
	l.mu.Lock()
	a := l.known[name]
	m.dropLoras(func(other *adapter) bool { return other.removed })
	if a == nil {
		l.mu.Unlock()
		return nil, nil
	}
	l.clock++
	a.used = l.clock
	a.users++ // it stays, whatever else leaves
	l.mu.Unlock()
	if a.bound == nil {
		if err := m.bring(a); err != nil {
			a.users--
			return nil, err
		}
	}
	return a, nil
}

// bring reads an adapter into memory. Idle ones leave for it.
func (m *Model) bring(a *adapter) error {
	from, err := lora.Open(a.dir, m.skeleton.Root)
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	defer from.Close()
	unbound, err := m.program.NewAdapter(nil, from)
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	a.bytes = heldBytes(from)
	l := &m.loras
	scratch := max(l.scratch, pages(unbound.AdapterBytes()))
	l.mu.Lock()
	for l.held+a.bytes+scratch > m.options.AdapterMemory && m.dropIdlest() {
	}
	full := l.held+a.bytes+scratch > m.options.AdapterMemory
	l.mu.Unlock()
	if full {
		return ErrAdaptersFull
	}
	bound, err := m.program.NewAdapter(m.backend, from)
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	if err := m.run.Allow(bound); err != nil {
		bound.Close()
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	a.bound, a.identity = bound, m.adapterIdentity(a.number, from)
	m.adapters = append(m.adapters, a)
	l.mu.Lock()
	l.held, l.scratch = l.held+a.bytes, scratch
	l.mu.Unlock()
	return nil
}

// dropIdlest frees the adapter without sequences that was used least recently. The lock is held.
func (m *Model) dropIdlest() bool {
	var least *adapter
	for _, a := range m.adapters {
		if a.dir != "" && a.users == 0 && (least == nil || a.used < least.used) {
			least = a
		}
	}
	m.dropLoras(func(a *adapter) bool { return a == least })
	return least != nil
}

// dropLoras frees the adapters for which leaves holds and that no sequence uses. The lock is held.
func (m *Model) dropLoras(leaves func(*adapter) bool) {
	m.adapters = slices.DeleteFunc(m.adapters, func(a *adapter) bool {
		if a.dir == "" || a.users > 0 || !leaves(a) {
			return false
		}
		a.bound.Close()
		a.bound = nil
		m.loras.held -= a.bytes
		return true
	})
}

// release ends the use of its adapter by a sequence.
func (s *Sequence) release() {
	if s.adapter == nil || s.adapter.dir == "" || s.released {
		return
	}
	s.released = true
	l := &s.model.loras
	l.mu.Lock()
	defer l.mu.Unlock()
	s.adapter.users--
	if s.adapter.removed {
		s.model.dropLoras(func(a *adapter) bool { return a.removed })
	}
}
