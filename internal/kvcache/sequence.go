package kvcache

import "fmt"

// A Sequence is the pages of one request, in order, in a table for each group of layers.
// Its tokens are those that were appended; the committed ones among them have valid keys
// and values.
type Sequence struct {
	cache     *Cache
	scope     uint64
	tables    []table // of each group
	tokens    []int32
	committed int
	contents  []content // of the full pages that registration has passed
	sealed    bool
}

// A table is the pages of one group.
type table struct {
	pages []int32 // those before held are 0
	held  int     // pages before it were freed, as no token to come sees them
}

// firstTokens is how long a sequence gets before its tables grow: a token that is generated
// allocates nothing.
const firstTokens = 4096

// NewSequence is an empty sequence. Only sequences of the same scope share pages: it
// stands for all that keys depend on besides the tokens, such as an adapter.
func (c *Cache) NewSequence(scope uint64) *Sequence {
	var s *Sequence
	if n := len(c.pool); n > 0 {
		s, c.pool = c.pool[n-1], c.pool[:n-1]
	} else {
		pages := min(firstTokens/c.config.PageTokens, c.config.Pages)
		s = &Sequence{cache: c, tables: make([]table, c.Groups()), tokens: make([]int32, 0, pages*c.config.PageTokens),
			contents: make([]content, 0, pages)}
		for g := range s.tables {
			s.tables[g].pages = make([]int32, 0, pages)
		}
	}
	s.scope = scope
	return s
}

// Len is the number of tokens appended.
func (s *Sequence) Len() int { return len(s.tokens) }

// Committed is the number of tokens whose keys and values are valid.
func (s *Sequence) Committed() int { return s.committed }

// Pages are the sequence's pages in a group, those reserved included. Where layers have
// a window, the entries of pages that no token to come sees are 0, and not the
// sequence's. The slice is the sequence's own and changes with the next Reserve, Commit
// or Truncate.
func (s *Sequence) Pages(group int) []int32 { return s.tables[group].pages }

// Reserve takes the pages that n further tokens need, when passes append at most pass of
// them between two commits: layers with a window take pages for no more than that and
// their window, as they give others back in between. Where pages are not to be had it
// takes none and returns [ErrFull]. A page that is shared, or that others may reuse, is
// left as it is: if the next token falls into one, the sequence goes on in a copy.
func (s *Sequence) Reserve(n, pass int) error {
	c := s.cache
	last := len(s.tokens) / c.config.PageTokens
	take := 0
	for g := range s.tables {
		take += max(s.wanted(g, n, pass)-len(s.tables[g].pages), 0)
		if s.shared(g, n, last) {
			take++
		}
	}
	if take > c.unused {
		return ErrFull
	}
	for g := range s.tables {
		t := &s.tables[g]
		if s.shared(g, n, last) {
			if err := s.copyPage(g, last); err != nil {
				return err
			}
		} else if n > 0 && last < len(t.pages) {
			c.unregister(t.pages[last])
		}
		for want := s.wanted(g, n, pass); len(t.pages) < want; {
			t.pages = append(t.pages, c.take())
		}
	}
	return nil
}

// wanted is the length of a group's table that Reserve asks for.
func (s *Sequence) wanted(group, n, pass int) int {
	c := s.cache
	end := len(s.tokens) + n
	if window := c.layout.windows[group]; window > 0 {
		held := s.tables[group].held * c.config.PageTokens
		end = min(end, max(len(s.tokens)+pass, held+window+pass))
	}
	return c.config.PagesFor(end)
}

// shared reports whether n tokens to come begin in a page that others hold too.
func (s *Sequence) shared(group, n, last int) bool {
	pages := s.tables[group].pages
	return n > 0 && last < len(pages) && s.cache.pages[pages[last]].refs > 1
}

// copyPage replaces page i of a group, which others hold, by a copy.
func (s *Sequence) copyPage(group, i int) error {
	c, pages := s.cache, s.tables[group].pages
	old, p := pages[i], c.take()
	for slot := range c.slots {
		all, n := c.tensors(slot)
		for _, t := range all[:n] {
			if err := c.memory.Copy(t.Index(int(p)), t.Index(int(old))); err != nil {
				c.drop(p)
				return fmt.Errorf("kvcache: slot %d, page %d: %w", slot, old, err)
			}
		}
	}
	c.drop(old)
	pages[i] = p
	return nil
}

// Append says which tokens come next. There must be room for them: what was not
// reserved is left out, and the number of tokens taken is returned.
func (s *Sequence) Append(tokens ...int32) int {
	room := len(tokens)
	for g := range s.tables {
		room = min(room, len(s.tables[g].pages)*s.cache.config.PageTokens-len(s.tokens))
	}
	room = max(room, 0)
	s.tokens = append(s.tokens, tokens[:room]...)
	return room
}

// Slots writes the slots of tokens from, from+1, … to dst, one each: where the backend
// stores their keys and values in the layers of a group. The tokens were appended or at
// least reserved, and their pages not yet freed.
func (s *Sequence) Slots(group int, dst []int32, from int) {
	size, pages := s.cache.config.PageTokens, s.tables[group].pages
	for i := range dst {
		at := from + i
		dst[i] = pages[at/size]*int32(size) + int32(at%size)
	}
}

// Commit declares the keys and values of all appended tokens valid, after the pass
// that stored them, offers the pages that are full for reuse, and frees those that
// no token to come sees.
func (s *Sequence) Commit() {
	c, size := s.cache, s.cache.config.PageTokens
	s.committed = len(s.tokens)
	for i := len(s.contents); !s.sealed && (i+1)*size <= s.committed; i++ {
		s.contents = append(s.contents, c.contentOf(s.scope, s.before(i), s.tokens[i*size:(i+1)*size]))
		for g := range s.tables {
			if t := &s.tables[g]; i >= t.held {
				c.register(t.pages[i], g, &s.contents[i])
			}
		}
	}
	for g, window := range c.layout.windows {
		if window > 0 {
			s.giveBack(g, firstSeen(s.committed-size, window, size))
		}
	}
}

// before is the content of the page before page i, nil for the first.
func (s *Sequence) before(i int) *content {
	if i == 0 {
		return nil
	}
	return &s.contents[i-1]
}

// firstSeen is the first page that the token at position n sees. Commit keeps what one
// page before its end sees, so that a prompt can be shared up to its last full page.
func firstSeen(n, window, size int) int { return max(n-window+1, 0) / size }

// giveBack frees a group's pages before page i.
func (s *Sequence) giveBack(group, i int) {
	t := &s.tables[group]
	for ; t.held < i; t.held++ {
		s.cache.drop(t.pages[t.held])
		t.pages[t.held] = 0
	}
}

// Seal keeps pages that fill up from now on from being reused by others: their keys
// depend on more than tokens and scope.
func (s *Sequence) Seal() { s.sealed = true }

// Truncate forgets the tokens from n on and the pages that only they needed, and returns
// the number of tokens left. That is n unless layers with a window have freed what
// the next token would see, in which case it is 0. After a pass that failed,
// Truncate(Committed()) undoes the step.
func (s *Sequence) Truncate(n int) int {
	c, size := s.cache, s.cache.config.PageTokens
	n = max(min(n, len(s.tokens)), 0)
	for g, window := range c.layout.windows {
		if held := s.tables[g].held; held > firstSeen(n, max(window, 1), size) {
			n = 0
		}
	}
	s.tokens = s.tokens[:n]
	s.committed = min(s.committed, n)
	s.contents = s.contents[:min(len(s.contents), n/size)]
	keep := c.config.PagesFor(n)
	for g := range s.tables {
		t := &s.tables[g]
		for i := len(t.pages) - 1; i >= max(keep, t.held); i-- {
			c.drop(t.pages[i])
		}
		t.pages = t.pages[:min(keep, len(t.pages))]
		t.held = min(t.held, keep)
	}
	return n
}

// Free gives all pages back, the last first, so that the beginning of a prompt is
// evicted last. The sequence is not used afterwards.
func (s *Sequence) Free() {
	for g := range s.tables {
		t := &s.tables[g]
		for i := len(t.pages) - 1; i >= t.held; i-- {
			s.cache.drop(t.pages[i])
		}
		*t = table{pages: t.pages[:0]}
	}
	*s = Sequence{cache: s.cache, tables: s.tables, tokens: s.tokens[:0], contents: s.contents[:0]}
	s.cache.pool = append(s.cache.pool, s)
}
