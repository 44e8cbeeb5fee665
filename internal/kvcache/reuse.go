package kvcache

// Reuse attaches the cached full pages of the longest matching prefix of tokens and returns the
// number of tokens found. They count as committed. A model with states matches up to a snapshot only. The last token is never reused, because its
// logits are needed. Windowed layers attach only the pages that new tokens attend to; earlier pages
// need not be cached. The sequence must be empty, and stays empty if no page matches.
func (s *Sequence) Reuse(tokens []int32) int {
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Queries += int64(len(tokens))
	if len(s.tokens) != 0 || len(s.tables[0].pages) != 0 || s.sealed {
		return 0
	}
	size := c.config.PageTokens
	best := s.match(tokens)
	s.contents = s.contents[:best]
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
			}
			t.pages = append(t.pages, p)
		}
	}
	if best > 0 && c.payment > 0 {
		s.current = c.snapshots[s.contents[best-1]]
		c.holdState(s.current)
	}
	s.tokens = append(s.tokens, tokens[:best*size]...)
	s.committed = best * size
	c.stats.Hits += int64(s.committed)
	return s.committed
}

// match returns the largest number of leading pages of tokens for which every group has cached what
// the next token attends to. It stores the contents of these pages in s.
func (s *Sequence) match(tokens []int32) int {
	c, size := s.cache, s.cache.config.PageTokens
	c.runs = append(c.runs[:0], make([]int, len(s.tables))...) // pages found without a gap, up to the last
	best := 0
	for n := 1; n*size < len(tokens); n++ {
		s.contents = append(s.contents, c.contentOf(s.scope, s.before(n-1), tokens[(n-1)*size:n*size]))
		whole := true
		for g, window := range c.layout.windows {
			if c.runs[g]++; c.find(g, &s.contents[n-1]) == none {
				c.runs[g] = 0
			}
			first := 0
			if window > 0 {
				first = firstSeen(n*size, window, size)
			} else if c.runs[g] == 0 {
				return best // a larger number cannot match either
			}
			whole = whole && c.runs[g] >= n-first
		}
		if whole && c.hasState(&s.contents[n-1]) {
			best = n
		}
	}
	return best
}
