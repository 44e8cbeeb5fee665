package residency

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/hostmem"
)

// A keeper keeps groups of a stream in memory of their own as far as its budget allows, so that
// passes do not read them. This memory can be taken back at any time: an evicted group streams
// through the window again. The lock of the stream guards the keeper.
type keeper struct {
	arena  *hostmem.Arena // nil: nothing is kept
	order  []*group       // by priority
	budget int64          // bytes: the minimum of what the two fields below allow
	wanted int64          // bytes that KeepBudget allows
	taken  int64          // bytes of wanted that other stores use, or that exceed their limit; see Policy
	held   int64          // bytes of the groups that are kept

	shedding int       // calls of shed
	landed   sync.Cond // a read has ended while shed waits
}

// rank sets the order in which groups are kept: the largest of each unit first, beginning with
// every second, fourth, … unit. The remaining groups are then spread evenly over the pass, so
// that the disk reads while kept groups compute.
func (s *stream) rank() {
	type place struct{ nth, unit int }
	places := make(map[*group]place, len(s.groups))
	s.keep.order = slices.Clone(s.groups)
	for i := range len(s.first) - 1 {
		list := slices.Clone(s.groups[s.first[i]:s.first[i+1]])
		slices.SortStableFunc(list, func(a, b *group) int { return cmp.Compare(b.slot, a.slot) })
		for n, g := range list {
			places[g] = place{n, int(bits.Reverse32(uint32(i)))}
		}
	}
	slices.SortStableFunc(s.keep.order, func(a, b *group) int {
		return cmp.Or(cmp.Compare(places[a].nth, places[b].nth), cmp.Compare(places[a].unit, places[b].unit))
	})
	s.choose()
}

// choose selects the groups that fit into the budget.
func (s *stream) choose() {
	var sum int64
	for _, g := range s.keep.order {
		if g.chosen = sum+g.slot <= s.keep.budget; g.chosen {
			sum += g.slot
		}
	}
}

// setBudget sets the bytes of groups that are kept. If it falls, groups are evicted at once.
// Groups of the running unit and groups that are being read follow when they are released. It
// returns the bytes that the stream does not need.
func (s *stream) setBudget(bytes int64) (rest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole || s.keep.arena == nil {
		return bytes
	}
	var all int64
	for _, g := range s.groups {
		all += g.slot
	}
	s.keep.wanted = min(bytes, all)
	s.setTaken(s.keep.taken)
	return max(0, bytes-all)
}

// setTaken sets the bytes of the budget that the stream may not use. The caller holds the lock.
func (s *stream) setTaken(n int64) {
	s.keep.taken = min(max(0, n), s.keep.wanted)
	if budget := s.keep.wanted - s.keep.taken; budget != s.keep.budget {
		s.keep.budget = budget
		s.choose()
		s.shed()
	}
}

// yield evicts n bytes of groups and returns the number of evicted bytes.
func (s *stream) yield(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.keep.held
	if n > 0 && before > 0 {
		s.setTaken(s.keep.wanted - max(0, before-n))
	}
	return before - s.keep.held
}

// kept returns the bytes of the groups that are kept.
func (s *stream) kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep.held
}

// lacks returns how many more bytes the stream would keep if no other store needed them.
func (s *stream) lacks() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep.wanted - s.keep.held
}

// exceeds tells the stream by how many bytes all stores would exceed their limit if it kept all
// it lacks. It returns the part of these bytes that other streams must do without.
func (s *stream) exceeds(n int64) (rest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setTaken(n)
	return n - s.keep.taken
}

// shed evicts groups until the rest fits into the budget. It also drops data that was read ahead,
// and waits for reads in flight.
func (s *stream) shed() {
	s.keep.landed.L = &s.mu
	s.keep.shedding++
	before := s.count
	for s.forgetIdle(); s.keep.held > s.keep.budget && s.retract(); {
		s.forgetIdle()
	}
	if s.keep.shedding--; s.count < before {
		s.fill(Next)
	}
}

// forgetIdle evicts groups of units that are not in the window until the rest fits into the
// budget.
func (s *stream) forgetIdle() {
	for n := len(s.keep.order) - 1; n >= 0 && s.keep.held > s.keep.budget; n-- {
		if g := s.keep.order[n]; g.home != nil && !s.entered(g.unit) {
			s.forget(g)
		}
	}
}

// entered reports whether groups of a unit are in the window or in use.
func (s *stream) entered(unit int) bool {
	if unit == s.current {
		return true
	}
	for k := s.first[unit]; k < s.first[unit+1]; k++ {
		if s.inside(k) {
			return true
		}
	}
	return false
}

// retract removes the group that was read ahead last. If it is being read, retract cancels the
// read and waits for it. It returns false if the running unit needs the group.
func (s *stream) retract() bool {
	if s.count == 0 || s.closed {
		return false
	}
	g := s.groups[(s.oldest+s.count-1)%len(s.groups)]
	if g.unit == s.current {
		return false
	}
	if g.state == slotLoading {
		s.mu.Unlock()
		s.mover.cancel(&g.transfer, errSkipped)
		s.mu.Lock()
		for g.state == slotLoading && g.unit != s.current && !s.closed {
			s.keep.landed.Wait()
		}
		return true // the state may have changed meanwhile
	}
	s.count--
	if g.home == nil {
		g.state, s.end = slotEmpty, g.at
	}
	return true
}

// forget frees the memory of a kept group that is not in the window.
func (s *stream) forget(g *group) {
	_ = g.home.Release() // released nowhere else
	s.keep.held -= g.slot
	g.home, g.state, g.err = nil, slotEmpty, nil
	s.counted.Evictions++
}

// settle allocates memory for the chosen groups of a unit. None of them may be in the window.
func (s *stream) settle(unit int) {
	for k, g := range s.groups[s.first[unit]:s.first[unit+1]] {
		if !g.chosen || g.home != nil || s.inside(s.first[unit]+k) || s.keep.held+g.slot > s.keep.budget {
			continue
		}
		home, err := s.keep.arena.Alloc(hostmem.Staging, int(g.slot))
		if err != nil {
			return // it streams
		}
		g.home, g.state = home, slotEmpty
		s.keep.held += g.slot
	}
}

// rests reports whether g is kept and loaded.
func (g *group) rests() bool { return g.home != nil && g.state == slotReady }

// ahead reports whether a group that has to be read follows group k before the window starts
// over.
func (s *stream) ahead(k int) bool {
	for n := range len(s.groups) - s.count {
		if !s.groups[(k+n)%len(s.groups)].rests() {
			return true
		}
	}
	return false
}

// forgetAll frees all kept groups. The window must be empty.
func (s *stream) forgetAll() {
	for _, g := range s.groups {
		if g.home != nil {
			s.forget(g)
		}
	}
}

// KeepBudget sets how many bytes of disk-tier weights stay in memory outside the windows. Weights
// are kept as they stream. If the budget falls, they are evicted at once, except those in use at
// that moment. It returns the bytes that weights other than experts do not need. Results stay
// bitwise the same. It is safe for concurrent use.
func (s *Store) KeepBudget(bytes int64) (rest int64) {
	bytes = max(0, bytes)
	for _, st := range s.streams {
		bytes = st.setBudget(bytes)
	}
	return bytes
}

// Kept returns the bytes of disk-tier weights that are kept in memory outside the windows. It is
// safe for concurrent use.
func (s *Store) Kept() (n int64) {
	for _, st := range s.streams {
		n += st.kept()
	}
	return n
}
