package kvcache

import "fmt"

// A Sequence is the pages of one request, in order. Its tokens are those that were
// appended; the committed ones among them have valid keys and values.
type Sequence struct {
	cache     *Cache
	scope     uint64
	pages     []int32
	length    int
	committed int
	room      int // tokens that may stand in pages that are this sequence's alone
	// chained is the number of pages from the first on that registration has passed,
	// and parent the serial of the last of them.
	chained int
	parent  uint64
	sealed  bool
}

// NewSequence is an empty sequence. Only sequences of the same scope share pages: it
// stands for all that keys depend on besides the tokens, such as an adapter.
func (c *Cache) NewSequence(scope uint64) *Sequence {
	var s *Sequence
	if n := len(c.pool); n > 0 {
		s, c.pool = c.pool[n-1], c.pool[:n-1]
	} else {
		s = &Sequence{cache: c}
	}
	s.scope = scope
	return s
}

// Len is the number of tokens appended.
func (s *Sequence) Len() int { return s.length }

// Committed is the number of tokens whose keys and values are valid.
func (s *Sequence) Committed() int { return s.committed }

// Pages are the sequence's pages, those reserved included. The slice is the
// sequence's own and changes with the next Reserve or Truncate.
func (s *Sequence) Pages() []int32 { return s.pages }

// Reuse attaches the full pages that hold the beginning of tokens, and returns the
// number of tokens that they save. They count as committed. The last token is never
// among them, as its logits are wanted. The sequence is empty and stays so where
// nothing fits.
func (s *Sequence) Reuse(tokens []int32) int {
	c := s.cache
	c.stats.Queries += int64(len(tokens))
	if s.length != 0 || len(s.pages) != 0 || s.sealed {
		return 0
	}
	size := c.config.PageTokens
	for n := size; n < len(tokens); n += size {
		p := c.find(s.scope, s.parent, tokens[n-size:n])
		if p == none {
			break
		}
		c.hold(p)
		s.pages = append(s.pages, p)
		s.parent = c.pages[p].serial
	}
	s.chained = len(s.pages)
	s.length = s.chained * size
	s.committed = s.length
	c.stats.Hits += int64(s.length)
	return s.length
}

// Reserve takes the pages that n further tokens need. Where they are not to be had it
// takes none and returns [ErrFull]. A page that is shared, or that others may reuse,
// is left as it is: if the next token falls into one, the sequence goes on in a copy.
func (s *Sequence) Reserve(n int) error {
	c := s.cache
	want := c.config.PagesFor(s.length + n)
	last := s.length / c.config.PageTokens
	private := n <= 0 || last >= len(s.pages) || c.pages[s.pages[last]].refs == 1
	take := max(want-len(s.pages), 0)
	if !private {
		take++
	}
	if take > c.unused {
		return ErrFull
	}
	if !private {
		if err := s.copyPage(last); err != nil {
			return err
		}
	} else if n > 0 && last < len(s.pages) {
		c.unregister(s.pages[last])
	}
	for len(s.pages) < want {
		s.pages = append(s.pages, c.take())
	}
	s.room = len(s.pages) * c.config.PageTokens
	return nil
}

// copyPage replaces page i, which others hold, by a copy.
func (s *Sequence) copyPage(i int) error {
	c, old := s.cache, s.pages[i]
	p := c.take()
	for l := range c.layers {
		all, n := c.tensors(l)
		for _, t := range all[:n] {
			if err := c.memory.Copy(t.Index(int(p)), t.Index(int(old))); err != nil {
				c.drop(p)
				return fmt.Errorf("kvcache: layer %d, page %d: %w", l, old, err)
			}
		}
	}
	copy(c.pageTokens(p), c.pageTokens(old))
	c.drop(old)
	s.pages[i] = p
	return nil
}

// Append says which tokens come next. There must be room for them: what was not
// reserved is left out, and the number of tokens taken is returned.
func (s *Sequence) Append(tokens ...int32) int {
	size := s.cache.config.PageTokens
	n := max(min(len(tokens), s.room-s.length), 0)
	for i, t := range tokens[:n] {
		at := s.length + i
		s.cache.tokens[int(s.pages[at/size])*size+at%size] = t
	}
	s.length += n
	return n
}

// Slots writes the slots of tokens from, from+1, … to dst, one each: where the backend
// stores their keys and values. The tokens were appended or at least reserved.
func (s *Sequence) Slots(dst []int32, from int) {
	size := s.cache.config.PageTokens
	for i := range dst {
		at := from + i
		dst[i] = s.pages[at/size]*int32(size) + int32(at%size)
	}
}

// Commit declares the keys and values of all appended tokens valid, after the pass
// that stored them, and offers the pages that are full for reuse.
func (s *Sequence) Commit() {
	s.committed = s.length
	for !s.sealed && (s.chained+1)*s.cache.config.PageTokens <= s.committed {
		s.parent = s.cache.register(s.pages[s.chained], s.scope, s.parent)
		s.chained++
	}
}

// Seal keeps pages that fill up from now on from being reused by others: their keys
// depend on more than tokens and scope.
func (s *Sequence) Seal() { s.sealed = true }

// Truncate forgets the tokens from n on and the pages that only they needed. After a
// pass that failed, Truncate(Committed()) undoes the step.
func (s *Sequence) Truncate(n int) {
	c := s.cache
	if n >= s.length && c.config.PagesFor(s.length) == len(s.pages) {
		return
	}
	s.length = max(min(n, s.length), 0)
	s.committed = min(s.committed, s.length)
	s.room = s.length
	keep := c.config.PagesFor(s.length)
	for i := len(s.pages) - 1; i >= keep; i-- {
		c.drop(s.pages[i])
	}
	s.pages = s.pages[:keep]
	if full := s.length / c.config.PageTokens; full < s.chained {
		s.rechain(full)
	}
}

// rechain sets the chain back to the first n pages.
func (s *Sequence) rechain(n int) {
	s.chained, s.parent = 0, 0
	for ; s.chained < n; s.chained++ {
		p := s.pages[s.chained]
		s.parent = s.cache.register(p, s.scope, s.parent)
	}
}

// Free gives all pages back, the last first, so that the beginning of a prompt is
// evicted last. The sequence is not used afterwards.
func (s *Sequence) Free() {
	for i := len(s.pages) - 1; i >= 0; i-- {
		s.cache.drop(s.pages[i])
	}
	*s = Sequence{cache: s.cache, pages: s.pages[:0]}
	s.cache.pool = append(s.cache.pool, s)
}
