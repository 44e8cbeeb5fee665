package kvcache

// Reuse attaches the cached full pages of the longest matching prefix of tokens and returns the
// number of tokens found. They count as committed. A model with states only matches up to a
// snapshot. The last token is never reused, because its logits are needed. Windowed layers attach
// only the pages that new tokens attend to; earlier pages need not be cached. Reuse first reads
// pages of the backing, if pages are free for them; after Restore, only if Restore has started to
// read them. The sequence must be empty, and stays empty if no page matches.
func (s *Sequence) Reuse(tokens []int32) int {
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Queries += int64(len(tokens))
	if !s.empty() {
		return 0
	}
	size := c.config.PageTokens
	if c.backing != nil && !s.asked {
		s.restore(tokens, s.match(tokens, c.inMemory), nil)
	}
	defer s.awaitRestored().release(c)
	best := s.match(tokens, c.inMemory)
	for g, window := range c.layout.windows {
		t := &s.tables[g]
		if window > 0 {
			t.held = firstSeen(best*size, window, size)
		}
		for i := range best {
			p := int32(0)
			if i >= t.held {
				p = c.find(g, &s.contents[i])
				c.hold(p)
				c.offer(&s.contents[i], int32(g), i) // it was used
			}
			t.pages = append(t.pages, p)
		}
	}
	if best > 0 && c.statePages > 0 {
		s.current = c.snapshots[s.contents[best-1]]
		c.holdState(s.current)
		c.offer(&s.contents[best-1], statePart, best-1)
	}
	s.tokens = append(s.tokens, tokens[:best*size]...)
	s.committed = best * size
	c.stats.Hits += int64(s.committed)
	return s.committed
}

func (s *Sequence) empty() bool {
	return len(s.tokens) == 0 && len(s.tables[0].pages) == 0 && !s.sealed
}

// has reports whether a content is known: the page of a group, or a state if part is statePart.
type has func(part int32, at *content) bool

// inMemory is a has for the cache only.
func (c *Cache) inMemory(part int32, at *content) bool {
	if part == statePart {
		return c.hasState(at)
	}
	return c.find(int(part), at) != none
}

// match returns the largest number of leading pages of tokens for which every group has what the
// next token attends to. It stores the contents of these pages in s.
func (s *Sequence) match(tokens []int32, has has) int {
	c, size := s.cache, s.cache.config.PageTokens
	c.runs = append(c.runs[:0], make([]int, len(s.tables))...)
	f := search{runs: c.runs}
	s.contents = s.contents[:0]
	for n := 1; n*size < len(tokens); n++ {
		s.contents = append(s.contents, s.contentOf(s.before(n-1), tokens[(n-1)*size:n*size]))
		if !f.next(c, &s.contents[n-1], has) {
			break
		}
	}
	s.contents = s.contents[:f.best]
	return f.best
}

// A search finds the largest number of leading pages for which every group has what the next token attends
// to.
type search struct {
	runs   []int // by group: pages that were found without a gap, up to the last
	looked int   // number of pages looked up
	best   int   // the result so far
}

// next looks up the page of content at. It returns false if no larger number can match.
func (f *search) next(c *Cache, at *content, has has) bool {
	f.looked++
	size, whole := c.config.PageTokens, true
	for g, window := range c.layout.windows {
		if f.runs[g]++; !has(int32(g), at) {
			f.runs[g] = 0
		}
		first := 0
		if window > 0 {
			first = firstSeen(f.looked*size, window, size)
		} else if f.runs[g] == 0 {
			return false
		}
		whole = whole && f.runs[g] >= f.looked-first
	}
	if whole && has(statePart, at) {
		f.best = f.looked
	}
	return true
}
