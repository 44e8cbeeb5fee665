package kvcache

import "fmt"

// A Sequence holds the tokens and pages of one request, with one page table per group of layers.
// Tokens are appended first and committed once their keys and values are valid.
type Sequence struct {
	cache     *Cache
	scope     uint64
	salt      [32]byte
	tables    []table // one per group
	tokens    []int32
	committed int
	contents  []content // of the full pages that registration has visited
	sealed    bool

	asked     bool         // Restore was called
	restoring *restoration // nil if no page is being read

	// The states of layers that have one; see state.go.
	current, next stateID // valid after the committed tokens; written by the next pass
	copy          stateID // written by the next pass after a part of its tokens, as a copy
	copied        int
	earlier       int  // number of tokens whose state next still has, those before the last pass; 0: none
	generated     bool // the current pass has no prompt tokens
	mark          bool // the last snapshot within the generated tokens is marked
	marked        content
	markedAt      int // its page
}

// A table is the page table of one group.
type table struct {
	pages []int32 // entries before held are 0
	held  int     // number of leading pages that were freed because no future token attends to them
}

// firstTokens is the initial capacity of a sequence's tables. Below it, generating a token does
// not allocate.
const firstTokens = 4096

// NewSequence returns an empty sequence. Only sequences with equal scopes share pages. The scope
// identifies everything besides the tokens that keys depend on, such as an adapter.
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

// Salt restricts the sharing of pages to sequences with equal salt. It identifies what does not
// fit into 64 bits, such as the hash of an adapter or of a client's secret. The default is zero.
// The sequence must be empty.
func (s *Sequence) Salt(salt [32]byte) { s.salt = salt }

// Len returns the number of appended tokens.
func (s *Sequence) Len() int { return len(s.tokens) }

// Committed returns the number of tokens whose keys and values are valid.
func (s *Sequence) Committed() int { return s.committed }

// Pages returns the sequence's pages in a group, including reserved ones. Entries of pages that
// have left the group's window are 0 and do not belong to the sequence. The slice is valid until
// the next Reserve, Commit or Truncate. The caller must not modify it.
func (s *Sequence) Pages(group int) []int32 { return s.tables[group].pages }

// Reserve takes the pages that n more tokens need, if a pass appends at most pass tokens before
// each commit. Windowed layers take pages for at most their window plus pass tokens, because
// Commit frees pages in between. If there are not enough pages, Reserve takes none and returns
// [ErrFull]. If the next token falls into a page that is shared or registered, Reserve copies
// that page first and leaves the original unchanged. A sequence that holds all pages in use may
// take pages that Resize has made unusable.
func (s *Sequence) Reserve(n, pass int) error {
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(s.tokens) / c.config.PageTokens
	if more := s.take(n, pass) - c.unused; more > 0 && !(s.alone() && c.usable()+more <= c.config.start() && c.restore(more)) {
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
	if n > 0 {
		return s.reserveState()
	}
	return nil
}

// Missing returns the number of pages that Reserve lacks, or 0 if it would succeed.
func (s *Sequence) Missing(n, pass int) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return max(s.take(n, pass)-s.cache.unused, 0)
}

// Needs returns the number of pages that Reserve takes.
func (s *Sequence) Needs(n, pass int) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return s.take(n, pass)
}

// take returns the number of pages that Reserve takes.
func (s *Sequence) take(n, pass int) int {
	last, take := len(s.tokens)/s.cache.config.PageTokens, 0
	for g := range s.tables {
		take += max(s.wanted(g, n, pass)-len(s.tables[g].pages), 0)
		if s.shared(g, n, last) {
			take++
		}
	}
	if n > 0 {
		take += s.lacking()
	}
	return take
}

// wanted returns the table length that Reserve needs in a group.
func (s *Sequence) wanted(group, n, pass int) int {
	c := s.cache
	end := len(s.tokens) + n
	if window := c.layout.windows[group]; window > 0 {
		held := s.tables[group].held * c.config.PageTokens
		end = min(end, max(len(s.tokens)+pass, held+window+pass))
	}
	return c.config.PagesFor(end)
}

// shared reports whether the first of n new tokens falls into a page with other references.
func (s *Sequence) shared(group, n, last int) bool {
	pages := s.tables[group].pages
	return n > 0 && last < len(pages) && s.cache.pages[pages[last]].refs > 1
}

// copyPage replaces page i of a group, which other sequences use, by a copy.
func (s *Sequence) copyPage(group, i int) error {
	c, pages := s.cache, s.tables[group].pages
	old, p := pages[i], c.take()
	for slot := range c.slots {
		all, n := c.tensors(slot)
		for _, t := range all[:n] {
			if err := c.slots[slot].memory.Copy(t.Index(int(p)), t.Index(int(old))); err != nil {
				c.drop(p)
				return fmt.Errorf("kvcache: slot %d, page %d: %w", slot, old, err)
			}
		}
	}
	c.drop(old)
	pages[i] = p
	return nil
}

// Append adds the next tokens and returns how many fit in the reserved pages. It drops the
// others.
func (s *Sequence) Append(tokens ...int32) int {
	room := len(tokens)
	for g := range s.tables {
		room = min(room, len(s.tables[g].pages)*s.cache.config.PageTokens-len(s.tokens))
	}
	room = max(room, 0)
	s.tokens = append(s.tokens, tokens[:room]...)
	return room
}

// Slots writes the slots of tokens from, from+1, … to dst: where the backend stores their keys
// and values in the layers of a group. The tokens must be appended or reserved, and their pages
// not yet freed.
func (s *Sequence) Slots(group int, dst []int32, from int) {
	size, pages := s.cache.config.PageTokens, s.tables[group].pages
	for i := range dst {
		at := from + i
		dst[i] = pages[at/size]*int32(size) + int32(at%size)
	}
}

// Commit marks the keys and values of all appended tokens valid, after the pass that stored them.
// It registers full pages for reuse and frees pages that no future token attends to.
func (s *Sequence) Commit() {
	c, size := s.cache, s.cache.config.PageTokens
	c.mu.Lock()
	defer c.mu.Unlock()
	first := s.committed
	s.committed = len(s.tokens)
	for i := len(s.contents); !s.sealed && (i+1)*size <= s.committed; i++ {
		s.contents = append(s.contents, s.contentOf(s.before(i), s.tokens[i*size:(i+1)*size]))
		for g := range s.tables {
			if t := &s.tables[g]; i >= t.held {
				c.register(t.pages[i], g, &s.contents[i])
				c.offer(&s.contents[i], int32(g), i)
			}
		}
	}
	for g, window := range c.layout.windows {
		if window > 0 {
			s.giveBack(g, firstSeen(s.committed-size, window, size))
		}
	}
	s.commitStates(first)
}

// before returns the content of the page before page i, or nil for the first page.
func (s *Sequence) before(i int) *content {
	if i == 0 {
		return nil
	}
	return &s.contents[i-1]
}

// firstSeen returns the first page that the token at position n attends to. Commit also keeps the
// pages needed one page before the end, so that a prompt can be shared up to its last full page.
func firstSeen(n, window, size int) int { return max(n-window+1, 0) / size }

// giveBack drops the references to a group's pages before page i.
func (s *Sequence) giveBack(group, i int) {
	t := &s.tables[group]
	for ; t.held < i; t.held++ {
		s.cache.drop(t.pages[t.held])
		t.pages[t.held] = 0
	}
}

// Seal excludes pages that fill up from now on from reuse, because their keys depend on more than
// tokens and scope.
func (s *Sequence) Seal() { s.sealed = true }

// Truncate removes the tokens from n on, frees the pages that only they needed, and returns the
// number of tokens left. That is n, or 0 if windowed layers have already freed pages that the
// next token attends to. For a model with states it may also be less than n: the beginning of the
// last pass if n lies within that pass, or the end of a snapshot. After a failed pass,
// Truncate(Committed()) undoes the step.
func (s *Sequence) Truncate(n int) int {
	c, size := s.cache, s.cache.config.PageTokens
	c.mu.Lock()
	defer c.mu.Unlock()
	n = s.rewind(max(min(n, len(s.tokens)), 0))
	for g, window := range c.layout.windows {
		if held := s.tables[g].held; held > firstSeen(n, max(window, 1), size) {
			n = s.rewind(0)
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

// Free drops all page references, last page first, so that the beginning of a prompt is evicted
// last. It cancels Restore. The sequence must not be used afterwards.
func (s *Sequence) Free() {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cancelRestore()
	for g := range s.tables {
		t := &s.tables[g]
		for i := len(t.pages) - 1; i >= t.held; i-- {
			s.cache.drop(t.pages[i])
		}
		*t = table{pages: t.pages[:0]}
	}
	s.freeStates()
	*s = Sequence{cache: s.cache, tables: s.tables, tokens: s.tokens[:0], contents: s.contents[:0]}
	s.cache.pool = append(s.cache.pool, s)
}
