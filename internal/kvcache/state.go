package kvcache

import (
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Layers of some architectures have a state instead of keys and values. A state summarises all
// tokens so far and has one size for any number of them. A sequence reads one state and writes
// another, so that a failed pass changes nothing. A state at the end of a page can be registered,
// like that page, under the hash of all tokens before it: a snapshot. Reuse finds a prefix only
// up to a snapshot.
//
// States have memory of their own but are accounted in pages: a state takes as many pages of the
// cache, which then hold nothing, as its bytes would fill. Limits, growth and eviction therefore
// only count pages.

// heldStates is the number of states that a sequence needs: one to read and one to write.
const heldStates = 2

// tokensPerState is the number of tokens per sequence that SharedPages assumes for states.
const tokensPerState = 1024

// leastPage is the page size, in bytes, of a model without keys and values.
const leastPage = 4096

// A stateID is the number of a state, from 1 on; 0 means none.
type stateID int32

// slot returns the index of the state's memory, or -1 for none.
func (id stateID) slot() int32 { return int32(id) - 1 }

// state is the memory of one state in all layers that have one.
type state struct {
	refs       int32   // sequences that read or write it
	pages      []int32 // that count for it
	content    content
	registered bool
}

// StateBytes returns the size of one state over all layers.
func (c Config) StateBytes() int64 {
	var n int64
	for _, elements := range c.States {
		n += 4 * int64(elements)
	}
	return n
}

// statePages returns the number of pages that count for a state.
func (c Config) statePages() int {
	if len(c.States) == 0 {
		return 0
	}
	page := c.PageBytes()
	return int((c.StateBytes() + page - 1) / page)
}

// AddressedBytes returns the size of the address range of all states. Only the part for which
// pages count is used.
func (c Config) AddressedBytes() int64 { return int64(c.stateSlots()) * c.StateBytes() }

func (c Config) stateSlots() int {
	if len(c.States) == 0 {
		return 0
	}
	return max(min(c.StateSlots, c.Pages/c.statePages()), heldStates)
}

// newStates allocates the memory of states.
func (c *Cache) newStates() error {
	n := c.config.stateSlots()
	c.statePages = c.config.statePages()
	c.states = make([]state, n)
	for i := n; i > 0; i-- {
		c.freeStates = append(c.freeStates, stateID(i))
	}
	c.snapshots = make(map[content]stateID, n)
	for i, elements := range c.config.States {
		memory := c.memoryOfState(i)
		t, err := memory.New(meta.Float32, n, elements)
		if err != nil {
			return fmt.Errorf("kvcache: state %d: %w", i, err)
		}
		c.stateMemory = append(c.stateMemory, t)
		if m, ok := memory.(shrinker); ok {
			m.SmallPages(t)
		}
	}
	return nil
}

// States returns the memory of each layer's states, [states, elements]. The caller must not modify
// the slice.
func (c *Cache) States() []tensor.Tensor { return c.stateMemory }

func (c *Cache) state(id stateID) *state { return &c.states[id.slot()] }

// takeState returns a state with undefined contents and one reference, or 0 if too few pages are
// free.
func (c *Cache) takeState() stateID {
	if c.unused < c.statePages {
		return 0
	}
	if len(c.freeStates) == 0 && !c.evictState() {
		return 0
	}
	last := len(c.freeStates) - 1
	id := c.freeStates[last]
	c.freeStates = c.freeStates[:last]
	s := c.state(id)
	s.refs = 1
	for len(s.pages) < c.statePages {
		s.pages = append(s.pages, c.take())
	}
	return id
}

// evictState evicts the snapshot without references that has been free longest, and reports
// whether there was one.
func (c *Cache) evictState() bool {
	for p := c.free.first; p != none; p = c.pages[p].next {
		if id := c.pages[p].state; id != 0 {
			c.forgetState(id, none)
			return true
		}
	}
	return false
}

// holdState adds a reference to a state.
func (c *Cache) holdState(id stateID) {
	s := c.state(id)
	if s.refs++; s.refs == 1 {
		for _, p := range s.pages {
			c.hold(p)
		}
	}
}

// dropState removes a reference. A snapshot without references stays until its pages are taken.
func (c *Cache) dropState(id stateID) {
	if id == 0 {
		return
	}
	s := c.state(id)
	if s.refs--; s.refs > 0 {
		return
	}
	for _, p := range s.pages {
		c.drop(p)
	}
	if !s.registered {
		c.freeState(id)
	}
}

// freeState returns the memory of a state without references to the operating system.
func (c *Cache) freeState(id stateID) {
	s := c.state(id)
	s.pages = s.pages[:0]
	c.freeStates = append(c.freeStates, id)
	for i, t := range c.stateMemory {
		if m, ok := c.memoryOfState(i).(discarder); ok {
			m.Discard(t.Slice(int(id.slot()), int(id.slot())+1))
		}
	}
}

// registerState registers a state as the snapshot of the tokens that end with the page of content
// at, unless there is one.
func (c *Cache) registerState(id stateID, at *content) bool {
	if _, found := c.snapshots[*at]; found {
		return false
	}
	s := c.state(id)
	s.content, s.registered = *at, true
	c.snapshots[*at] = id
	for _, p := range s.pages {
		c.pages[p].state = id
	}
	return true
}

// forgetState unregisters a snapshot. The caller takes page p and counts it.
func (c *Cache) forgetState(id stateID, p int32) {
	s := c.state(id)
	delete(c.snapshots, s.content)
	s.registered = false
	for _, q := range s.pages {
		c.pages[q].state = 0
		if q != p && c.pages[q].refs == 0 {
			c.stats.Cached--
		}
	}
	if s.refs == 0 {
		c.freeState(id)
	}
}

// kept reports whether a page without references is worth keeping.
func (p *page) kept() bool { return p.registered || p.state != 0 }

// lacking returns the number of pages that the state written by the next pass takes.
func (s *Sequence) lacking() int {
	if s.next != 0 {
		return 0
	}
	return s.cache.statePages
}

// reserveState takes the state that the next pass writes.
func (s *Sequence) reserveState() error {
	if s.cache.statePages > 0 && s.next == 0 {
		if s.next = s.cache.takeState(); s.next == 0 {
			return ErrFull
		}
	}
	return nil
}

// statePages returns the number of pages that count for states of s.
func (s *Sequence) statePages() int {
	n := 0
	for _, id := range [...]stateID{s.current, s.next, s.copy} {
		if id != 0 {
			n += s.cache.statePages
		}
	}
	return n
}

// State returns the states that the pass of the uncommitted tokens reads and writes. If a page
// ends within these tokens, and pages are free, it also requests a copy at the end of the last
// such page before the last token, which Commit registers. generated reports that none of the
// tokens belongs to a prompt.
func (s *Sequence) State(generated bool) backend.StateSpan {
	c, size := s.cache, s.cache.config.PageTokens
	c.mu.Lock()
	defer c.mu.Unlock()
	span := backend.StateSpan{Rows: len(s.tokens) - s.committed, From: s.current.slot(), To: s.next.slot()}
	s.generated, s.earlier = generated, 0
	end := (len(s.tokens) - 1) / size * size
	if span.Rows > 1 && end > s.committed && !s.sealed {
		if s.copy == 0 {
			s.copy = c.takeState()
		}
		if s.copy != 0 {
			s.copied = end
			span.SaveAfter, span.Save = end-s.committed, s.copy.slot()
		}
	}
	return span
}

// commitStates makes the state that the pass has written current, and registers shareable states.
// first is the number of tokens before the pass.
func (s *Sequence) commitStates(first int) {
	c, size := s.cache, s.cache.config.PageTokens
	if c.statePages == 0 || s.committed == first {
		return
	}
	if s.copy != 0 {
		if content := s.contentAt(s.copied); content != nil {
			c.registerState(s.copy, content)
			c.offer(content, statePart, s.copied/size-1)
		}
		c.dropState(s.copy)
		s.copy = 0
	}
	read := s.current
	s.current, s.next = s.next, 0
	if read != 0 {
		s.recycle(read)
	}
	if s.earlier = 0; s.next != 0 {
		s.earlier = first
	}
	if content := s.contentAt(s.committed); s.committed%size == 0 && content != nil {
		s.forgetMark()
		if c.registerState(s.current, content) && s.generated {
			s.mark, s.marked, s.markedAt = true, *content, s.committed/size-1
		} else {
			c.offer(content, statePart, s.committed/size-1)
		}
	}
}

// recycle lets the next pass write to a state that was read, unless it is useful to others.
func (s *Sequence) recycle(read stateID) {
	if st := s.cache.state(read); s.next == 0 && st.refs == 1 && !st.registered {
		s.next = read
		return
	}
	s.cache.dropState(read)
}

// forgetMark removes the sequence's earlier snapshot within the generated tokens, so that a long
// answer keeps one snapshot instead of one per page.
func (s *Sequence) forgetMark() {
	c := s.cache
	if id, found := c.snapshots[s.marked]; s.mark && found && c.state(id).refs == 0 {
		pages := c.state(id).pages
		c.forgetState(id, none)
		for _, p := range pages { // taken before pages with contents
			c.unlink(p)
			c.pushFront(p)
		}
	}
	s.mark = false
}

// contentAt returns the content of the page that ends after n tokens, or nil if there is none.
func (s *Sequence) contentAt(n int) *content {
	if i := n/s.cache.config.PageTokens - 1; i >= 0 && i < len(s.contents) {
		return &s.contents[i]
	}
	return nil
}

// rewind returns the largest number of committed tokens up to n whose state is known, and makes
// that state current.
func (s *Sequence) rewind(n int) int {
	c := s.cache
	if c.statePages == 0 {
		return n
	}
	c.dropState(s.copy)
	s.copy = 0
	if n >= s.committed {
		return n
	}
	earlier := s.earlier
	s.earlier = 0
	size := c.config.PageTokens
	for last := n / size * size; last > 0 && (earlier == 0 || earlier > n || last > earlier); last -= size {
		if content := s.contentAt(last); content != nil {
			if id, found := c.snapshots[*content]; found {
				c.holdState(id)
				c.dropState(s.current)
				s.current = id
				return last
			}
		}
	}
	if earlier > 0 && earlier <= n {
		late := s.current
		s.current, s.next = s.next, 0
		s.recycle(late)
		return earlier
	}
	c.dropState(s.current)
	s.current = 0
	return 0
}

// freeStates drops all states of s.
func (s *Sequence) freeStates() {
	if s.mark { // the answer may be the beginning of the next prompt
		s.cache.offer(&s.marked, statePart, s.markedAt)
	}
	for _, id := range [...]stateID{s.copy, s.next, s.current} {
		s.cache.dropState(id)
	}
}

// hasState reports whether the state after the page of content at is known. It returns true if
// there are no states.
func (c *Cache) hasState(at *content) bool {
	if c.statePages == 0 {
		return true
	}
	_, found := c.snapshots[*at]
	return found
}
