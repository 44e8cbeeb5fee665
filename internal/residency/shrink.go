package residency

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/meta"
)

// copies are the weights of the cpu tier that are in anonymous memory: promoted and converted
// ones. Each can be dropped, because its bytes are on disk. A promoted weight then streams, or is
// used in the checkpoint's mapping. A converted one streams from a sidecar, or is converted again
// before its next use. The zero value has no limit.
type copies struct {
	mu     sync.Mutex
	order  []*segment // the first is dropped last
	held   int64      // bytes, including copies in progress
	busy   int        // 1 + the unit between Acquire and Release; 0 means none
	next   bool       // the copies of the following unit stay, too
	taken  int64      // math.MaxInt64 minus the budget
	window int64      // bytes of the budget that windows of displaced segments take
	over   atomic.Bool
	short  atomic.Int64 // size of a copy that did not fit, or was taken, since Promote last went through all; 0 means none
	raised chan struct{}
	all    *atomic.Int64 // bytes of copies of all stores
}

// errNoRoom reports that the budget has no room for a copy.
var errNoRoom = errors.New("no room within the memory limit")

// Budget limits the bytes of cpu-tier weights that the store holds in anonymous memory. If it
// holds more, it drops copies, except those of the unit that computes, which are dropped at its
// release. If Promote was called, dropped weights return in the background when the budget rises.
// Results stay bitwise the same. It is safe for concurrent use.
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

// Copied returns the bytes of weights in anonymous memory. It is safe for concurrent use.
func (s *Store) Copied() int64 {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	return s.copies.held
}

// Excess reports whether the copies exceed the budget because the unit that computes uses them.
// It is safe for concurrent use.
func (s *Store) Excess() bool { return s.copies.over.Load() }

func (c *copies) budget() int64 {
	return math.MaxInt64 - c.taken - min(c.window, math.MaxInt64-c.taken)
}

// allowed returns the budget.
func (c *copies) allowed() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return math.MaxInt64 - c.taken
}

// setWindow sets the part of the budget that windows take.
func (c *copies) setWindow(bytes int64) {
	c.mu.Lock()
	c.window = bytes
	c.mu.Unlock()
}

// wake lets Promote continue.
func (c *copies) wake() {
	select {
	case c.raised <- struct{}{}:
	default: // it is going to
	}
}

// enter marks unit i as computing: its copies stay until leave.
func (c *copies) enter(i int) {
	c.mu.Lock()
	c.busy, c.next = i+1, false
	c.mu.Unlock()
}

// leave ends enter. It reports whether the copies exceed the budget.
func (c *copies) leave() bool {
	c.mu.Lock()
	c.busy, c.next = 0, false
	c.mu.Unlock()
	return c.over.Load()
}

// keepNext keeps the copies of the next unit, too, until leave.
func (c *copies) keepNext() {
	c.mu.Lock()
	c.next = true
	c.mu.Unlock()
}

// reserve counts n bytes for a copy if the budget and the limit of the process allow them. If
// force is set, a pass needs the copy, and others are dropped for it.
func (s *Store) reserve(n int64, force bool) bool {
	if !s.policy.reserve(s, n, force) {
		s.copies.short.Store(n)
		return false
	}
	if s.copies.over.Load() {
		s.trim()
	}
	return true
}

// reserve counts n more bytes if the budget allows them or force is set.
func (c *copies) reserve(n int64, force bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > c.budget()-c.held && !force {
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
	c.all.Add(n)
	c.over.Store(c.held > c.budget())
}

// listSegments lists the segments that can be copied: those that every token reads, then experts.
func (s *Store) listSegments() {
	var experts []*segment
	seen, unitOf := map[*segment]bool{}, map[*segment]int{}
	for i := range s.units {
		u := &s.units[i]
		for _, w := range u.wants {
			// Only single rows of a table are read, which is as fast in the mapping.
			if w.device == devicemap.CPU && !w.gathered && !seen[w.segment] {
				seen[w.segment], unitOf[w.segment] = true, i
				s.copies.order = append(s.copies.order, w.segment)
			}
		}
		for _, n := range u.Experts {
			st := s.stacks[n.Module]
			for e := range st.experts {
				if g := &st.experts[e]; g.device == devicemap.CPU {
					experts = append(experts, g)
				}
			}
		}
	}
	rankCopies(s.copies.order, unitOf)
	s.copies.order = append(s.copies.order, experts...)
}

// trim drops copies until the rest fits into the budget.
func (s *Store) trim() {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	s.copies.add(0)
	s.drop(s.copies.held - s.copies.budget())
}

// yield drops n bytes of copies, and then of streamed weights that are kept, for another store.
// It returns the number of dropped bytes.
func (s *Store) yield(n int64) int64 {
	s.copies.mu.Lock()
	dropped := s.drop(n)
	s.copies.mu.Unlock()
	if dropped > 0 {
		s.copies.short.Store(dropped)
	}
	for _, st := range s.streams {
		dropped += st.yield(n - dropped)
	}
	return dropped
}

// drop drops copies of n bytes in the order of the policy, except those of the unit that
// computes. It returns the number of dropped bytes. The caller holds the lock of copies.
func (s *Store) drop(n int64) (dropped int64) {
	c := &s.copies
	if n <= 0 {
		return 0
	}
	var order []int
	if s.policy.Order != nil {
		order = s.policy.Order(len(c.order))
	}
	for i := range c.order {
		at := len(c.order) - 1 - i
		if order != nil {
			at = order[i]
		}
		if g := c.order[at]; !s.computing(g) {
			if size := g.drop(); size > 0 {
				c.add(-size)
				s.displace(g)
				s.counts.evictions.Add(1)
				dropped += size
			}
		}
		if dropped >= n {
			break
		}
	}
	return dropped
}

// LeastBudget returns the minimum bytes of copies that a pass needs: the weights of the largest
// unit that are converted in memory, and the growth of the windows of streamed weights.
func (s *Store) LeastBudget() (most int64) {
	window := s.leastWindow(s.canStream)
	if s.sidecar != nil {
		return window
	}
	for i := range s.units {
		var n int64
		for _, node := range s.units[i].Modules {
			for _, m := range node.Module.Walk() {
				if m.Kind == meta.KindEmbedding {
					continue // its rows are looked up as stored
				}
				for _, p := range m.Params {
					n += int64(hostmem.Up(int(s.quantizer.bytes[p.Resolve()]), blockSize))
				}
			}
		}
		most = max(most, n+n/256) // copies begin at multiples of hostmem.Align
	}
	if s.quantizer.exact() || s.late.state.Load() == lateOff {
		return most + window
	}
	others := s.leastWindow(func(g *segment) bool { return !g.converts() && s.canStream(g) })
	return max(window, most+others) // converted weights stream, or a pass has them in memory
}

// computing reports whether g is read by the unit that computes, or kept for the next unit.
func (s *Store) computing(g *segment) bool {
	c := &s.copies
	if c.busy == 0 {
		return false
	}
	return s.uses(&s.units[c.busy-1], g) || c.next && g.stack == nil && c.busy < len(s.units) && s.uses(&s.units[c.busy], g)
}

// uses reports whether u reads g.
func (s *Store) uses(u *unit, g *segment) bool {
	for i := range u.wants {
		if u.wants[i].segment == g {
			return true
		}
	}
	for _, n := range u.Experts {
		if g.stack != nil && s.stacks[n.Module] == g.stack {
			return true
		}
	}
	return false
}

// copyAll copies segments that are not yet in anonymous memory, in order, as far as the budget
// allows.
func (s *Store) copyAll(ctx context.Context) error {
	s.copies.short.Store(0)
	for i, g := range s.copies.order {
		if err := s.promote(ctx, g); errors.Is(err, errNoRoom) {
			for _, g := range s.copies.order[i:] {
				s.displaceUncopied(g)
			}
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// publish makes a copy of g usable. If the budget has become too small meanwhile and force is not
// set, it frees the copy and returns errNoRoom.
func (s *Store) publish(g *segment, made *copied, force bool) error {
	c := &s.copies
	c.mu.Lock()
	defer c.mu.Unlock()
	if !force && c.held > c.budget() {
		c.add(-made.bytes())
		_ = made.block.Release()
		s.displace(g)
		return errNoRoom
	}
	g.copied.Store(made)
	s.replace(g)
	return nil
}

// freeAll frees all copies. No pass may run.
func (s *Store) freeAll() {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	for _, g := range s.copies.order {
		s.copies.add(-g.drop())
	}
}
