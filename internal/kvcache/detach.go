package kvcache

// Detach replaces the pages that other sequences also use by copies, so that recomputing the
// sequence from its first token takes no further page. If too few pages are free, it changes
// nothing and returns ErrFull with the number of missing pages.
func (s *Sequence) Detach() (missing int, err error) {
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if missing = s.sharedPages() - c.unused; missing > 0 {
		return missing, ErrFull
	}
	for g := range s.tables {
		t := &s.tables[g]
		for i := t.held; i < len(t.pages); i++ {
			if c.pages[t.pages[i]].refs < 2 {
				continue
			}
			if err := s.copyPage(g, i); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

// sharedPages returns the number of pages that other sequences also use.
func (s *Sequence) sharedPages() (n int) {
	for _, t := range s.tables {
		for _, p := range t.pages[t.held:] {
			if s.cache.pages[p].refs > 1 {
				n++
			}
		}
	}
	return n
}
