package residency

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

func (s *Store) expertSlot() int64 { return int64(s.experts.each) }

// resizeExperts follows ExpertBudget. No unit computes.
func (s *Store) resizeExperts() {
	if n := int(s.expertTarget.Load()); s.experts != nil && n > 0 {
		_ = s.experts.resize(n) // without memory there are fewer slots
	}
}
