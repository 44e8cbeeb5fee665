package residency

import "slices"

// leastSlots is the minimum number of slots for experts: one to compute with, one to read into.
const leastSlots = 2

// ExpertBudget limits the memory of the slots for experts of the disk tier, in bytes. If it
// falls, the least valuable experts are evicted and the memory of their slots is returned to the
// system, when no unit computes. Results stay bitwise the same. It is safe for concurrent use.
func (s *Store) ExpertBudget(bytes int64) {
	if s.experts == nil {
		return
	}
	n := min(max(int(bytes/s.expertSlot()), leastSlots), len(s.experts.slots))
	s.expertTarget.Store(int64(n))
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	if s.copies.busy == 0 {
		s.experts.moves.Wait() // of a pass that has failed
		s.resizeExperts()
	}
}

// ExpertBytes returns the minimum memory of the slots for experts, and their memory in
// Options.Staging, in bytes.
func (s *Store) ExpertBytes() (least, planned int64) {
	if s.experts == nil {
		return 0, 0
	}
	n := s.experts.planned
	return int64(min(n, leastSlots)) * s.expertSlot(), int64(n) * s.expertSlot()
}

// Lends reports whether KeepBudget has an effect, or ExpertBudget beyond the experts' part of
// Options.Staging.
func (s *Store) Lends() bool {
	streams := slices.ContainsFunc(s.streams, func(st *stream) bool { return !st.holdsAll() })
	return s.keep && streams || s.experts != nil && len(s.experts.slots) > s.experts.planned
}

// ExpertSlotBytes returns the size of one slot for experts, or 0 if no expert is on the disk
// tier.
func (s *Store) ExpertSlotBytes() int64 {
	if s.experts == nil {
		return 0
	}
	return s.expertSlot()
}

func (s *Store) expertSlot() int64 { return int64(s.experts.each) }

// resizeExperts applies ExpertBudget. No unit may compute.
func (s *Store) resizeExperts() {
	n := int(s.expertTarget.Load())
	if s.experts == nil || n == 0 || n == s.experts.size() {
		return
	}
	s.experts.withoutFills(func() {
		_ = s.experts.resize(n) // if memory is short, there are fewer slots
	})
}
