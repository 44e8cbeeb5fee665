package residency

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// borrowed are weights of a unit that another store holds.
type borrowed struct {
	from     *Store // nil if there are none
	takes    func(*meta.Param) bool
	segments map[*meta.Param]*segment
}

// borrow records that unit u of s uses the other store's p. It returns false if s holds p itself.
func (s *Store) borrow(p *meta.Param, u *unit) (bool, error) {
	b := &s.borrowed
	if b.from == nil || !b.takes(p) {
		return false, nil
	}
	h := b.from.holders[p]
	if h == nil || h.stored == nil || h.device != devicemap.CPU {
		return false, fmt.Errorf("residency: %s is not in the memory of the store that lends it", s.paths[p])
	}
	if b.segments == nil {
		b.segments = map[*meta.Param]*segment{}
	}
	b.segments[p] = h.stored
	u.borrowed = append(u.borrowed, h.stored)
	return true, nil
}

// enterLender makes the borrowed weights of unit i usable. The lender keeps them in memory until
// leaveLender.
func (s *Store) enterLender(i int) error {
	from := s.borrowed.from
	if from == nil {
		return nil
	}
	from.policy.touch(from)
	from.copies.enter(i)
	for _, g := range s.units[i].borrowed {
		err := errDisplaced
		if !g.displaced.Load() {
			err = from.use(g)
		}
		if err != nil {
			s.leaveLender()
			return fmt.Errorf("residency: %s, which another store lends: %w", g.path, err)
		}
	}
	return nil
}

// leaveLender ends enterLender.
func (s *Store) leaveLender() {
	if from := s.borrowed.from; from != nil && from.copies.leave() {
		from.trim()
	}
}
