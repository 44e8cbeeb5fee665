package residency

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
)

// A Policy decides which weights stay in memory, for all stores of a process. The zero value is
// ready to use. It is safe for concurrent use.
//
// Stores of one Policy share a limit. A store that needs memory beyond it takes memory from idle
// stores by dropping their copies of weights, beginning with the least recently used store. The
// bytes of a dropped copy are also on disk, so only the speed of its store changes.
type Policy struct {
	// Experts returns the cache that decides which experts of the disk tier stay. nil means
	// policy.New.
	Experts func(layers []policy.Layer, capacity int64, ahead int) *policy.Cache
	// Order returns the order in which n copies of a store are dropped. Copy 0 is the most used
	// one. nil means the last one first.
	Order func(n int) []int
	// GuessAll reads all predicted experts, not only those that are usually right. The fields
	// must be set before the first store is created.
	GuessAll bool

	mu     sync.Mutex // held while memory is reserved; locked before the lock of a store's copies
	stores []*Store
	less   atomic.Int64 // math.MaxInt64 minus the limit
	copied atomic.Int64 // bytes of copies of all stores, including copies in progress
	clock  atomic.Int64 // calls of Acquire of all stores
}

// SetLimit limits the memory that the ledger of the stores' arena counts, except memory of
// measurements. If the limit falls, stores drop copies of weights, idle stores first. Copies of a
// unit that computes are dropped at its release. Other memory is counted but not released.
// Results stay bitwise the same.
func (p *Policy) SetLimit(bytes int64) {
	p.less.Store(math.MaxInt64 - max(bytes, 0))
	p.trim()
}

// add registers a store.
func (p *Policy) add(s *Store) {
	p.mu.Lock()
	p.stores = append(p.stores, s)
	p.mu.Unlock()
	p.trim() // for its window and slots
}

// remove unregisters a store.
func (p *Policy) remove(s *Store) {
	p.mu.Lock()
	p.stores = slices.DeleteFunc(p.stores, func(other *Store) bool { return other == s })
	p.mu.Unlock()
}

// touch records that s runs a unit.
func (p *Policy) touch(s *Store) { s.touched.Store(p.clock.Add(1)) }

// excess returns by how many bytes the stores would exceed the limit if s held n more bytes.
func (p *Policy) excess(s *Store, n int64) int64 {
	less := p.less.Load()
	if less == 0 {
		return 0
	}
	l := s.arena.Ledger
	return l.Total() - l.Held(hostmem.Weights) - l.Held(hostmem.Other) + p.copied.Load() + n - (math.MaxInt64 - less)
}

// reserve counts n bytes for a copy of s if its budget and the limit allow them. It takes memory
// from idle stores, or from any store if force is set.
func (p *Policy) reserve(s *Store, n int64, force bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if over := p.excess(s, n); over > 0 {
		p.take(s, over, force)
		if p.excess(s, n) > 0 && !force {
			return false
		}
	}
	return s.copies.reserve(n, force)
}

// keep lets s keep streamed weights as far as the limit allows. It takes memory from idle stores.
func (p *Policy) keep(s *Store) {
	lacks := int64(0)
	for _, st := range s.streams {
		lacks += st.lacks()
	}
	if lacks == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if over := p.excess(s, lacks); over > 0 {
		p.take(s, over, false)
	}
	over := p.excess(s, lacks)
	for _, st := range s.streams {
		over = st.exceeds(over)
	}
}

// idle reports whether other was not used during the last two passes of s.
func (p *Policy) idle(other, s *Store) bool {
	return other != s && p.clock.Load()-other.touched.Load() > int64(2*len(s.units))
}

// take drops n bytes of copies of stores that are idle for s, or of any store.
func (p *Policy) take(s *Store, n int64, any bool) {
	order := slices.SortedFunc(slices.Values(p.stores), func(a, b *Store) int { return cmp.Compare(a.touched.Load(), b.touched.Load()) })
	for _, other := range order {
		if n > 0 && (any || p.idle(other, s)) {
			n -= other.yield(n)
		}
	}
}

// trim drops copies until the stores are within the limit.
func (p *Policy) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stores) == 0 {
		return
	}
	s := p.stores[0]
	if over := p.excess(s, 0); over > 0 {
		p.take(s, over, true)
	}
}

// release is called after s has released a unit; last is set for the last one of a pass. It drops
// copies that had to stay while the unit computed. If s lacks copies, and there is room or other
// stores have become idle, Promote continues.
func (p *Policy) release(s *Store, last bool) {
	if p.less.Load() == 0 {
		return
	}
	if p.excess(s, 0) > 0 {
		p.trim()
	}
	if last && s.keep {
		p.keep(s)
	}
	short := s.copies.short.Load()
	if !last || short == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.excess(s, short) <= 0 || slices.ContainsFunc(p.stores, func(other *Store) bool { return p.idle(other, s) && other.Copied() > 0 }) {
		s.copies.wake()
	}
}
