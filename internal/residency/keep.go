package residency

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/hostmem"
)

// A stream keeps groups in memory of their own as far as its budget has room, so that passes do not
// read them. This memory can be taken back at any time: a group that loses it streams through the
// window again. The lock of the stream guards all of it.
type keeper struct {
	arena  *hostmem.Arena // nil keeps nothing
	order  []*group       // those to keep first, first
	budget int64          // bytes, the least of the two below
	wanted int64          // bytes that KeepBudget allows
	taken  int64          // bytes of wanted that other stores have, or may not be exceeded for; see Policy
	held   int64          // bytes of groups that are kept

	shedding int       // calls of shed
	landed   sync.Cond // a read has ended while shed waits
}

// rank sets the order in which groups are kept: the largest of each unit first, and of these every
// second, fourth, … unit. The rest is then spread evenly over the pass, and the disk reads while kept
// groups compute.
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

// choose marks the groups that the budget has room for.
func (s *stream) choose() {
	var sum int64
	for _, g := range s.keep.order {
		if g.chosen = sum+g.slot <= s.keep.budget; g.chosen {
			sum += g.slot
		}
	}
}

// setBudget sets the bytes of groups that are kept. If it falls, groups lose their memory at once, but
// for those of the unit that runs and those that are being read, which follow when they are released. It
// returns the bytes that the stream has no use for.
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

// setTaken sets the bytes of the budget that are not used. The caller holds the lock.
func (s *stream) setTaken(n int64) {
	s.keep.taken = min(max(0, n), s.keep.wanted)
	if budget := s.keep.wanted - s.keep.taken; budget != s.keep.budget {
		s.keep.budget = budget
		s.choose()
		s.shed()
	}
}

// yield frees n bytes of groups and returns how many bytes that were.
func (s *stream) yield(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.keep.held
	if n > 0 && before > 0 {
		s.setTaken(s.keep.wanted - max(0, before-n))
	}
	return before - s.keep.held
}

// kept returns the bytes of groups that are kept.
func (s *stream) kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep.held
}

// lacks returns how many bytes more the stream would keep if no other store needed them.
func (s *stream) lacks() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep.wanted - s.keep.held
}

// exceeds tells the stream by how many bytes all stores would exceed their limit if it kept what it lacks. It
// returns those of them that other streams must do without.
func (s *stream) exceeds(n int64) (rest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setTaken(n)
	return n - s.keep.taken
}

// shed frees groups until the rest is within the budget. For that it drops what was read ahead, too, and
// waits for reads that are under way.
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

// forgetIdle frees groups of units that are not in the window until the rest is within the budget.
func (s *stream) forgetIdle() {
	for n := len(s.keep.order) - 1; n >= 0 && s.keep.held > s.keep.budget; n-- {
		if g := s.keep.order[n]; g.home != nil && !s.entered(g.unit) {
			s.forget(g)
		}
	}
}

// entered reports whether groups of a unit are in the window, or are used.
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

// retract removes the group that was read ahead last, or ends its read and waits for that. It reports
// false if the unit that runs needs the group.
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
		return true // others may have changed meanwhile
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

// settle gives the chosen groups of a unit memory of their own. None of them is in the window.
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

// rests reports whether g is kept and was read.
func (g *group) rests() bool { return g.home != nil && g.state == slotReady }

// ahead reports whether a group that has to be read follows group k before the window begins again.
func (s *stream) ahead(k int) bool {
	for n := range len(s.groups) - s.count {
		if !s.groups[(k+n)%len(s.groups)].rests() {
			return true
		}
	}
	return false
}

// forgetAll frees all kept segments. The window must be empty.
func (s *stream) forgetAll() {
	for _, g := range s.groups {
		if g.home != nil {
			s.forget(g)
		}
	}
}

// KeepBudget sets the bytes of weights of the disk tier that stay in memory, beside the window. They are
// kept as they stream. If it falls, they lose their memory at once, but for those that are used at that
// moment. It returns the bytes that weights other than experts have no use for. Results stay bitwise the
// same. Any goroutine may call it.
func (s *Store) KeepBudget(bytes int64) (rest int64) {
	bytes = max(0, bytes)
	for _, st := range s.streams {
		bytes = st.setBudget(bytes)
	}
	return bytes
}

// Kept returns the bytes that weights of the disk tier keep in memory, beside the window. Any goroutine
// may call it.
func (s *Store) Kept() (n int64) {
	for _, st := range s.streams {
		n += st.kept()
	}
	return n
}
