package residency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/stored"
)

// copies are the weights of the cpu tier that are in anonymous memory: promoted and converted ones. Each
// can be dropped, because its bytes are on disk: a promoted weight is then used in the checkpoint's
// mapping, a converted one is converted again before its next use. The zero value is not limited.
type copies struct {
	mu     sync.Mutex
	order  []movable // in order of use, those that are dropped last first
	held   int64     // bytes, those being copied included
	busy   int       // 1 + the unit between Acquire and Release, 0 for none
	taken  int64     // from the maximum: math.MaxInt64 - budget
	over   atomic.Bool
	raised chan struct{}
}

// A movable is a weight or an expert of the cpu tier that the store can copy to anonymous memory.
type movable struct {
	entry   *entry // nil for an expert
	convert bool   // of the entry

	stack  *stack
	expert int
}

// errNoRoom says that the budget has no room for a copy.
var errNoRoom = errors.New("no room within the memory limit")

// Budget limits the bytes of weights that the store holds in anonymous memory for the cpu tier. If it
// holds more, it drops copies until it is within the budget, but for those of the unit that computes,
// which follow at its release. Weights that were dropped come back in the background when the budget
// allows, if Promote was called. Results stay bitwise the same. Any goroutine may call it.
func (s *Store) Budget(bytes int64) {
	c := &s.copies
	c.mu.Lock()
	before := c.budget()
	c.taken = math.MaxInt64 - max(bytes, 0)
	c.mu.Unlock()
	s.trim()
	if bytes > before {
		c.wake()
	}
}

// Copied returns the bytes of weights in anonymous memory. Any goroutine may call it.
func (s *Store) Copied() int64 {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	return s.copies.held
}

// Excess reports whether the copies exceed the budget, because the unit that computes uses them. Any
// goroutine may call it.
func (s *Store) Excess() bool { return s.copies.over.Load() }

func (c *copies) budget() int64 { return math.MaxInt64 - c.taken }

// wake has Promote continue.
func (c *copies) wake() {
	select {
	case c.raised <- struct{}{}:
	default: // it is going to
	}
}

// enter marks unit i as computing: its copies stay until leave.
func (c *copies) enter(i int) {
	c.mu.Lock()
	c.busy = i + 1
	c.mu.Unlock()
}

// leave ends enter. It reports whether the copies exceed the budget.
func (c *copies) leave() bool {
	c.mu.Lock()
	c.busy = 0
	c.mu.Unlock()
	return c.over.Load()
}

// makeRoom counts n more bytes that a pass needs, and drops copies for them.
func (s *Store) makeRoom(n int64) {
	s.copies.mu.Lock()
	s.copies.add(n)
	s.copies.mu.Unlock()
	if s.copies.over.Load() {
		s.trim()
	}
}

// reserve counts n more bytes if the budget allows.
func (c *copies) reserve(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > c.budget()-c.held {
		return false
	}
	c.add(n)
	return true
}

func (c *copies) release(n int64) {
	c.mu.Lock()
	c.add(-n)
	c.mu.Unlock()
}

func (c *copies) add(n int64) {
	c.held += n
	c.over.Store(c.held > c.budget())
}

// listMovables notes what can be copied: in order of use what every token reads, then experts.
func (s *Store) listMovables() {
	var experts []movable
	type use struct {
		*entry
		convert bool
	}
	seen := map[use]bool{}
	for i := range s.units {
		u := &s.units[i]
		for _, w := range u.wants {
			// Of a table only rows are read: they are as well where they are.
			if this := (use{w.entry, w.convert}); w.device == devicemap.CPU && !w.gather && !seen[this] {
				seen[this] = true
				s.copies.order = append(s.copies.order, movable{entry: w.entry, convert: w.convert})
			}
		}
		for _, n := range u.Experts {
			st := s.stacks[n.Module]
			for e := range st.experts {
				if st.experts[e].device == devicemap.CPU {
					experts = append(experts, movable{stack: st, expert: e})
				}
			}
		}
	}
	s.copies.order = append(s.copies.order, experts...)
}

// trim drops copies, the last in order first, until the rest is within the budget.
func (s *Store) trim() {
	c := &s.copies
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(0)
	for i := len(c.order) - 1; i >= 0 && c.held > c.budget(); i-- {
		if m := &c.order[i]; c.busy == 0 || !s.uses(&s.units[c.busy-1], m) {
			if n := m.drop(); n > 0 {
				c.add(-n)
				s.counts.evictions.Add(1)
			}
		}
	}
}

// LeastBudget returns the bytes of copies that a pass needs at least: the converted weights of the
// largest unit.
func (s *Store) LeastBudget() (most int64) {
	for i := range s.units {
		var n int64
		for k := range s.copies.order {
			if m := &s.copies.order[k]; (m.convert || m.stack != nil && m.stack.convert) && s.uses(&s.units[i], m) {
				pieces, _, _ := s.piecesOf(m)
				n += s.quantizer.sizesOf(pieces)
			}
		}
		most = max(most, n)
	}
	return most
}

// uses reports whether u reads m.
func (s *Store) uses(u *unit, m *movable) bool {
	for i := range u.wants {
		if u.wants[i].entry == m.entry {
			return true
		}
	}
	for _, n := range u.Experts {
		if m.stack != nil && s.stacks[n.Module] == m.stack {
			return true
		}
	}
	return false
}

// drop frees the copies of m, which no unit uses, and returns their bytes.
func (m *movable) drop() (n int64) {
	if m.entry == nil {
		x := &m.stack.experts[m.expert]
		if n = freeCopies(&x.promoted, &x.converted); n > 0 {
			x.taken = false
			x.forget()
		}
		return n
	}
	e := m.entry
	if n = freeCopies(&e.promoted, &e.converted); n > 0 && e.taken {
		e.taken, e.present = false, false
	}
	return n
}

func freeCopies(promoted *atomic.Pointer[promotion], converted *atomic.Pointer[conversion]) (n int64) {
	if p := promoted.Swap(nil); p != nil {
		n += int64(len(p.slot))
		_ = p.block.Release() // released nowhere else
	}
	if c := converted.Swap(nil); c != nil {
		n += int64(len(c.block.Bytes()))
		_ = c.block.Release()
	}
	return n
}

// forget removes the bytes from the parts of x.
func (x *expert) forget() {
	for i := range x.parts {
		for j := range x.parts[i] {
			x.parts[i][j].Data = nil
		}
	}
}

// isCopied reports whether m is in anonymous memory.
func (m *movable) isCopied() bool {
	if m.entry == nil {
		x := &m.stack.experts[m.expert]
		return x.promoted.Load() != nil || x.converted.Load() != nil
	}
	if m.convert {
		return m.entry.converted.Load() != nil
	}
	return m.entry.promoted.Load() != nil
}

// copyAll copies what is not in anonymous memory yet, in order, as far as the budget has room. It
// returns the pieces that it has promoted.
func (s *Store) copyAll(ctx context.Context) (moved []stored.Piece, err error) {
	for i := range s.copies.order {
		m := &s.copies.order[i]
		if m.isCopied() {
			continue
		}
		pieces, err := s.copyOne(ctx, m)
		if errors.Is(err, errNoRoom) {
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
		moved = append(moved, pieces...)
	}
	return moved, nil
}

func (s *Store) copyOne(ctx context.Context, m *movable) (moved []stored.Piece, err error) {
	pieces, path, to := s.piecesOf(m)
	if m.convert || m.stack != nil && m.stack.convert {
		if !s.copies.hasRoom(s.quantizer.sizesOf(pieces)) {
			return nil, errNoRoom
		}
		if m.stack != nil {
			_, err = s.convertExpert(ctx, m.stack, m.expert)
		} else {
			_, err = s.convertEntry(ctx, m.entry)
		}
		return nil, err
	}
	if err := s.makePieces(ctx, pieces); err != nil {
		return nil, err
	}
	made, err := s.promote(ctx, pieces)
	if err != nil {
		return nil, fmt.Errorf("residency: promoting %s: %w", path, err)
	}
	if made == nil {
		return nil, nil
	}
	return pieces, s.copies.publish(made, to)
}

// piecesOf returns the pieces of m, its path, and the place of its promoted copy. It looks the pieces of
// an expert up anew: the expert's own belong to the computing goroutine.
func (s *Store) piecesOf(m *movable) (pieces []stored.Piece, path string, to *atomic.Pointer[promotion]) {
	if m.entry != nil {
		return m.entry.pieces, m.entry.path, &m.entry.promoted
	}
	for _, p := range m.stack.params {
		pieces = append(pieces, s.expertPieces(p, m.expert)...)
	}
	return pieces, expertKey(m.stack.Path, m.expert), &m.stack.experts[m.expert].promoted
}

func (c *copies) hasRoom(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n <= c.budget()-c.held
}

// publish makes a copy usable, or frees it if the budget has become too small meanwhile.
func (c *copies) publish(made *promotion, to *atomic.Pointer[promotion]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held > c.budget() {
		c.add(-int64(len(made.slot)))
		_ = made.block.Release()
		return errNoRoom
	}
	to.Store(made)
	return nil
}

// freeAll frees all copies. Nothing computes any more.
func (s *Store) freeAll() {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	for i := range s.copies.order {
		s.copies.add(-s.copies.order[i].drop())
	}
}
