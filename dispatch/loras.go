package dispatch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/lora"
)

// ErrAdaptersFull reports that [Options].AdapterMemory has no room for an adapter. Either
// sequences, perhaps of other models, use the adapters in it, or an adapter that waited earlier
// comes first. Try again when [Model.NotifyAdapters] calls, or call [Model.StopWaiting] to give
// up.
var ErrAdaptersFull = errors.New("dispatch: the memory for adapters has no room: other adapters are in use or have their turn")

// An adapterPool is the memory for adapters of [Model.AddAdapter], of all models that a [Ledger]
// counts. Its lock also guards the loras of these models. While it is held, no pass begins to use
// an adapter, so that any goroutine may free an adapter without sequences. It is taken after the
// lock of limited.
type adapterPool struct {
	sync.Mutex
	clock   uint64      // counts uses
	held    int64       // bytes of the adapters in memory, and of the activations for them
	models  []*Model    // whose adapters were requested
	refused []*Model    // that had no room for an adapter since their last notification
	waits   []*loraWait // in order of their first refusal
}

// loras are the adapters of a model that are loaded on demand.
type loras struct {
	known    map[string]*adapter
	last     uint64     // number of the newest one
	resident []*adapter // in memory
	bringing bool       // one is being read into memory
	scratch  int64      // bytes of the activations of adapters: the maximum over those used
	unused   bool       // stations still have activations that the host has freed
	notify   func()     // see NotifyAdapters
}

// pool returns the memory for adapters, which models of one ledger share.
func (m *Model) pool() *adapterPool { return &m.options.Ledger.adapters }

// firstLora is above the numbers of Options.Adapters.
const firstLora = 1 << 32

// AddAdapter registers an adapter in addition to those of Options.Adapters. It reads the folder
// to check that the adapter fits, and takes no memory. The first sequence that uses the adapter
// loads it within Options.AdapterMemory. For that it evicts the least recently used idle adapters
// of any model of the Ledger. Results have the same bits as with Options.Adapters. AddAdapter
// returns an error if the name is empty or taken, if the adapter does not fit the model, or if it
// alone needs more than Options.AdapterMemory. It is safe for concurrent use.
func (m *Model) AddAdapter(a Adapter) error {
	if m.closed.Load() {
		return ErrClosed
	}
	taken := slices.ContainsFunc(m.options.Adapters, func(other Adapter) bool { return other.Name == a.Name })
	if a.Name == "" || taken {
		return fmt.Errorf("dispatch: adapter %q of %s: the name is empty or taken: use another one", a.Name, a.Dir)
	}
	bytes, scratch, err := m.loraBytes(a)
	if bytes += scratch; err == nil && bytes > m.settings.AdapterMemory {
		err = fmt.Errorf("it needs %d bytes, want at most the %d bytes of the memory for adapters: raise that (--lora-memory)", bytes, m.settings.AdapterMemory)
	}
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.Name, err)
	}
	p, l := m.pool(), &m.loras
	p.Lock()
	defer p.Unlock()
	if l.known[a.Name] != nil {
		return fmt.Errorf("dispatch: adapter %q of %s: the name is empty or taken: use another one", a.Name, a.Dir)
	}
	if l.known == nil {
		l.known = map[string]*adapter{}
	}
	l.last++
	l.known[a.Name] = &adapter{name: a.Name, dir: a.Dir, number: firstLora + l.last}
	return nil
}

// RemoveAdapter removes an adapter of AddAdapter. Sequences that use it continue; its memory is
// freed after the last of them. A later adapter of the same name does not share cached keys and
// values with it. RemoveAdapter returns [ErrNoAdapter] for any other name. It is safe for
// concurrent use.
func (m *Model) RemoveAdapter(name string) error {
	p, l := m.pool(), &m.loras
	var refused []*Model
	defer func() { notify(refused) }()
	p.Lock()
	defer p.Unlock()
	a := l.known[name]
	if a == nil {
		return fmt.Errorf("%w: %q", ErrNoAdapter, name)
	}
	delete(l.known, name)
	a.removed = true
	m.dropLoras(func(other *adapter) bool { return other == a })
	refused = p.endWait(p.wait(m, name))
	return nil
}

// loraBytes returns the memory of an adapter's matrices and of its activations.
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

// heldBytes returns the memory of an adapter's matrices, each in its own pages.
func heldBytes(a *lora.Adapter) (n int64) {
	for i := range a.Pairs {
		p := &a.Pairs[i]
		n += pages(p.A.Bytes()) + pages(p.B.Bytes())
		if !p.Magnitude.IsZero() {
			n += pages(4 * int64(p.Out))
		}
	}
	for i := range a.Saved {
		n += pages(a.Saved[i].Bytes())
	}
	return n
}

// pages rounds n up to whole pages.
func pages(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) / page * page
}

// lora returns the adapter of AddAdapter with a name, nil if there is none.
func (m *Model) lora(name string) *adapter {
	p := m.pool()
	p.Lock()
	defer p.Unlock()
	return m.loras.known[name]
}

// occupy loads an adapter for one more sequence. It may have been removed.
func (m *Model) occupy(a *adapter) error {
	p := m.pool()
	p.Lock()
	if p.holdsBack(m, a.name) {
		defer p.Unlock()
		return p.refuse(m, a.name)
	}
	p.clock++
	a.used = p.clock
	a.users++ // keeps it in memory while others are evicted
	p.Unlock()
	if a.bound == nil {
		if err := m.bring(a); err != nil {
			p.Lock()
			a.users--
			p.Unlock()
			return err
		}
	}
	m.StopWaiting(a.name)
	return nil
}

// leave ends one use of an adapter.
func (m *Model) leave(a *adapter) {
	p := m.pool()
	p.Lock()
	a.users--
	var refused []*Model
	if a.users == 0 {
		if a.removed {
			m.dropLoras(func(other *adapter) bool { return other == a })
		}
		refused, p.refused = p.refused, nil
	}
	p.Unlock()
	notify(refused)
}

// notify tells models that had no room for an adapter that there may be room now.
func notify(refused []*Model) {
	for _, m := range refused {
		p := m.pool()
		p.Lock()
		call := m.loras.notify
		p.Unlock()
		if call != nil {
			call()
		}
	}
}

// NotifyAdapters sets a function that is called when there may be room for adapters, after
// [Model.NewAdaptedSequence] has returned [ErrAdaptersFull]. Any goroutine may call it; it must
// not use the model.
func (m *Model) NotifyAdapters(call func()) {
	p := m.pool()
	p.Lock()
	m.loras.notify = call
	p.Unlock()
}

// bring reads an adapter into memory and evicts idle ones for it.
func (m *Model) bring(a *adapter) (err error) {
	from, err := lora.Open(a.dir, m.skeleton.Root)
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	defer from.Close()
	unbound, err := m.program.NewAdapter(nil, from)
	if err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	bytes := heldBytes(from)
	if err := m.takeLora(a.name, bytes, pages(unbound.AdapterBytes())); err != nil {
		return err
	}
	if err := m.measure(from); err != nil {
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	err = m.bindLora(a, from)
	p, l := m.pool(), &m.loras
	p.Lock()
	defer p.Unlock()
	l.bringing = false
	if err != nil {
		a.close()
		p.held -= bytes
		m.dropScratch()
		return fmt.Errorf("dispatch: adapter %q: %w", a.name, err)
	}
	a.bytes = bytes
	l.resident = append(l.resident, a)
	return nil
}

// bindLora copies an adapter to the host's memory and that of all GPUs.
func (m *Model) bindLora(a *adapter, from *lora.Adapter) (err error) {
	if a.bound, err = m.program.NewAdapter(m.backend, from); err != nil {
		return err
	}
	if err := m.run.Allow(a.bound); err != nil {
		return err
	}
	a.identity = m.adapterIdentity(a.number, from)
	return m.copyAdapter(a, from)
}

// takeLora takes memory of the pool for an adapter. It evicts adapters that no sequence uses.
func (m *Model) takeLora(name string, bytes, scratch int64) error {
	p, l := m.pool(), &m.loras
	p.Lock()
	defer p.Unlock()
	if !slices.Contains(p.models, m) {
		p.models = append(p.models, m)
	}
	if l.unused { // only the goroutine that computes may free them
		for _, s := range m.stations.list {
			s.run.Forbid()
		}
		l.unused = false
	}
	for {
		grown := max(scratch-l.scratch, 0)
		if p.held+bytes+grown <= m.settings.AdapterMemory {
			p.held, l.scratch, l.bringing = p.held+bytes+grown, l.scratch+grown, true
			return nil
		}
		if p.dropIdlest() {
			continue
		}
		if !p.inUse() {
			return fmt.Errorf("dispatch: an adapter of %d bytes and %d of activations does not fit: others take %d of the %d bytes for adapters",
				bytes, grown, p.held, m.settings.AdapterMemory)
		}
		return p.refuse(m, name)
	}
}

// inUse reports whether sequences use a loaded adapter, or an adapter is being loaded.
func (p *adapterPool) inUse() bool {
	return slices.ContainsFunc(p.models, func(m *Model) bool {
		return m.loras.bringing || slices.ContainsFunc(m.loras.resident, func(a *adapter) bool { return a.users > 0 })
	})
}

// dropIdlest frees the least recently used adapter without sequences, of any model. The caller
// holds the lock.
func (p *adapterPool) dropIdlest() bool {
	var of *Model
	var least *adapter
	for _, m := range p.models {
		for _, a := range m.loras.resident {
			if a.users == 0 && (least == nil || a.used < least.used) {
				of, least = m, a
			}
		}
	}
	if least != nil {
		of.dropLoras(func(a *adapter) bool { return a == least })
	}
	return least != nil
}

// dropLoras frees the adapters that leaves selects and no sequence uses. The caller holds the
// pool's lock.
func (m *Model) dropLoras(leaves func(*adapter) bool) {
	l := &m.loras
	l.resident = slices.DeleteFunc(l.resident, func(a *adapter) bool {
		if a.users > 0 || !leaves(a) {
			return false
		}
		a.close()
		m.pool().held -= a.bytes
		return true
	})
	m.dropScratch()
}

// dropScratch frees the activations of adapters if no sequence needs them. The caller holds the
// pool's lock.
func (m *Model) dropScratch() {
	l := &m.loras
	if l.scratch == 0 || l.bringing || len(l.resident) > 0 || len(m.adapters) > 0 {
		return
	}
	m.run.Forbid()
	l.unused = true
	m.pool().held -= l.scratch
	l.scratch = 0
}

// closeLoras frees the loaded adapters. No sequence may use them.
func (m *Model) closeLoras() {
	if m.options.Ledger == nil {
		return
	}
	p, l := m.pool(), &m.loras
	p.Lock()
	for _, a := range l.resident {
		a.close()
		p.held -= a.bytes
	}
	p.held -= l.scratch // freed with the activations
	l.resident, l.scratch, l.known = nil, 0, nil
	p.endWaits(m)
	isM := func(other *Model) bool { return other == m }
	p.models, p.refused = slices.DeleteFunc(p.models, isM), slices.DeleteFunc(p.refused, isM)
	refused := p.refused
	p.refused = nil
	p.Unlock()
	notify(refused)
}

// release ends the sequence's use of its adapter.
func (s *Sequence) release() {
	if s.adapter == nil || s.adapter.dir == "" || s.released {
		return
	}
	s.released = true
	s.model.leave(s.adapter)
}
