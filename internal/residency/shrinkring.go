package residency

import (
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/residency/policy"
)

// leastSlots is the smallest number of experts' slots that works: one to compute with, one to read into.
const leastSlots = 2

// ExpertBudget limits the memory of the slots for experts of the disk tier, in bytes. If it falls, the
// experts that are worth least are evicted and the memory of their slots is returned to the system, when
// no unit computes. Results stay bitwise the same. Any goroutine may call it.
func (s *Store) ExpertBudget(bytes int64) {
	if s.experts == nil {
		return
	}
	n := min(max(int(bytes/s.expertSlot()), leastSlots), len(s.experts.slots))
	s.expertTarget.Store(int64(n))
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	if s.copies.busy == 0 {
		s.resizeExperts()
	}
}

// ExpertBytes returns the least and the most memory of the slots for experts, in bytes.
func (s *Store) ExpertBytes() (least, most int64) {
	if s.experts == nil {
		return 0, 0
	}
	n := len(s.experts.slots)
	return int64(min(n, leastSlots)) * s.expertSlot(), int64(n) * s.expertSlot()
}

func (s *Store) expertSlot() int64 { return int64(len(s.experts.slots[0].buf)) }

// resizeExperts follows ExpertBudget. No unit computes.
func (s *Store) resizeExperts() {
	if n := int(s.expertTarget.Load()); s.experts != nil && n > 0 {
		s.ledger.Add(hostmem.Staging, s.experts.resize(n))
	}
}

// size returns the number of slots in use.
func (r *ring) size() int { return len(r.slots) - r.withheld }

// resize sets the number of slots that a cache's ring uses, and returns by how many bytes its memory
// grows. It does nothing while loads are held or on their way.
func (r *ring) resize(n int) (grown int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == r.size() || r.busy() {
		return 0
	}
	r.cache.SetAhead(policy.Ahead(n))
	for _, m := range r.cache.Resize(int64(n)) {
		at := r.home[m.ID]
		r.home[m.ID] = -1
		r.drop(&r.slots[at])
		r.spare = append(r.spare, at)
		hostmem.Discard(r.slots[at].buf)
	}
	grown = int64(n-r.size()) * int64(len(r.slots[0].buf))
	r.withheld = len(r.slots) - n
	return grown
}

// busy reports whether a load is held or on its way.
func (r *ring) busy() bool {
	for i := range r.slots {
		if r.slots[i].held > 0 || r.slots[i].state == slotLoading {
			return true
		}
	}
	return false
}
