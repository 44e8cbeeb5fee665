package kvcache

import (
	"github.com/heftai/heft/internal/kvstore"
)

// A restoration reads the pages of a prompt from the backing, in a goroutine of the cache.
// Restorations alternate page by page, so that a short one does not wait for a long one.
type restoration struct {
	contents []content // of the prompt's full pages
	search   search    // how many of them are in memory or in the backing
	searched bool
	page     int // index of the group's next page to read
	group    int
	ready    func()        // called when everything is read; may be nil
	done     chan struct{} // closed when nothing more is read

	// The cache's lock guards the fields below.
	held     held
	canceled bool
}

// held is what a restoration holds until the sequence takes it.
type held struct {
	pages  []int32
	states []stateID
}

func (h *held) release(c *Cache) {
	for i := len(h.pages) - 1; i >= 0; i-- {
		c.drop(h.pages[i])
	}
	for _, id := range h.states {
		c.dropState(id)
	}
	*h = held{}
}

// Restore starts to read those pages of tokens from the backing that are not in memory. It
// returns false if there is no such page, or if too few pages are free for tokens, if a pass
// appends at most pass tokens; Reuse then finds only pages in memory. Otherwise the cache's
// goroutine calls ready when everything is read, so that Reuse does not wait. Free cancels the
// reads. The sequence must be empty.
func (s *Sequence) Restore(tokens []int32, pass int, ready func()) bool {
	c := s.cache
	if c.backing == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.empty() || s.asked {
		return false
	}
	s.asked = true
	near := s.match(tokens, c.inMemory)
	defer func() { s.contents = s.contents[:0] }()
	if s.take(len(tokens), pass)-s.inUse(near) > c.unused {
		return false
	}
	s.restore(tokens, near, ready)
	return s.restoring != nil
}

// inUse returns how many of the first n pages Reuse would attach that other sequences hold.
func (s *Sequence) inUse(n int) (count int) {
	c, size := s.cache, s.cache.config.PageTokens
	for g, window := range c.layout.windows {
		first := 0
		if window > 0 {
			first = firstSeen(n*size, window, size)
		}
		for i := first; i < n; i++ {
			if c.pages[c.find(g, &s.contents[i])].refs > 0 {
				count++
			}
		}
	}
	return count
}

// restore starts a restoration of tokens, unless all their pages are in memory. match has found
// near of them in memory. The caller holds the cache's lock.
func (s *Sequence) restore(tokens []int32, near int, ready func()) {
	c, size := s.cache, s.cache.config.PageTokens
	full := (len(tokens) - 1) / size
	if c.backing == nil || full <= near {
		return
	}
	r := &restoration{contents: append(make([]content, 0, full), s.contents[:near]...),
		search: search{runs: make([]int, c.Groups())}, ready: ready, done: make(chan struct{})}
	for i := near; i < full; i++ {
		var before *content
		if i > 0 {
			before = &r.contents[i-1]
		}
		r.contents = append(r.contents, s.contentOf(before, tokens[i*size:(i+1)*size]))
	}
	s.restoring = r
	b := c.backing
	b.queue = append(b.queue, r)
	if !b.reading {
		b.reading = true
		b.reader.Go(func() {
			for c.takeTurn(b) {
			}
		})
	}
}

// awaitRestored waits until the restoration of s has ended and returns it, so that the caller can
// release what it holds. It returns nil if there is none. The caller holds the cache's lock,
// which awaitRestored unlocks while it waits.
func (s *Sequence) awaitRestored() *restoration {
	r, c := s.restoring, s.cache
	if r != nil {
		c.mu.Unlock()
		<-r.done
		c.mu.Lock()
		s.restoring = nil
	}
	return r
}

func (r *restoration) release(c *Cache) {
	if r != nil {
		r.held.release(c)
	}
}

// cancelRestore cancels the restoration of s without waiting for a page that is being read.
func (s *Sequence) cancelRestore() {
	if r := s.restoring; r != nil {
		r.canceled = true
		r.held.release(s.cache)
		s.restoring = nil
	}
}

// takeTurn reads a page of the first restoration in the queue. It returns false if there is none,
// or if the cache is being closed.
func (c *Cache) takeTurn(b *backing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b.queue) == 0 || b.closed {
		for _, r := range b.queue {
			close(r.done)
		}
		b.queue, b.reading = nil, false
		return false
	}
	r := b.queue[0]
	copy(b.queue, b.queue[1:])
	b.queue = b.queue[:len(b.queue)-1]
	if !r.canceled && c.advance(r) {
		b.queue = append(b.queue, r)
		return true
	}
	close(r.done)
	if r.ready != nil && !r.canceled {
		c.mu.Unlock()
		r.ready()
		c.mu.Lock()
	}
	return true
}

// advance looks up a page or reads one. It returns false when everything is read, or nothing more
// can be read. The caller holds the cache's lock, which advance unlocks while it asks the
// backing.
func (c *Cache) advance(r *restoration) bool {
	if !r.searched {
		more := r.search.next(c, &r.contents[r.search.looked], c.known)
		r.searched = !more || r.search.looked == len(r.contents)
		return !r.canceled
	}
	size, far := c.config.PageTokens, r.search.best
	for ; r.page < far; r.page, r.group = r.page+1, 0 {
		for at := &r.contents[r.page]; r.group < c.Groups(); r.group++ {
			if window := c.layout.windows[r.group]; window > 0 && r.page < firstSeen(far*size, window, size) {
				continue
			}
			if p := c.find(r.group, at); p != none {
				c.hold(p)
				r.held.pages = append(r.held.pages, p)
				continue
			}
			return c.readPage(r, at)
		}
	}
	if c.statePages > 0 && far > 0 {
		c.readState(r, &r.contents[far-1], far-1)
	}
	return false
}

// readPage reads the next page of a restoration and registers it. It returns false if no page is
// free, if the backing no longer has it, or if the restoration was cancelled.
func (c *Cache) readPage(r *restoration, at *content) bool {
	if c.unused == 0 {
		return false
	}
	p := c.take()
	filled := c.fill(int32(r.group), p, at, r.page)
	if filled {
		c.register(p, r.group, at)
	}
	if !filled || r.canceled {
		c.drop(p)
		return false
	}
	r.held.pages = append(r.held.pages, p)
	r.group++
	return true
}

// readState is readPage for a state, which may also be in memory.
func (c *Cache) readState(r *restoration, at *content, depth int) {
	id, found := c.snapshots[*at]
	if found {
		c.holdState(id)
	} else {
		if id = c.takeState(); id == 0 {
			return
		}
		if found = c.fill(statePart, id.slot(), at, depth); found {
			c.registerState(id, at)
		}
	}
	if !found || r.canceled {
		c.dropState(id)
		return
	}
	r.held.states = append(r.held.states, id)
}

// fill reads a page or a state that nothing else uses. It unlocks the cache while it reads.
func (c *Cache) fill(part, index int32, at *content, depth int) bool {
	b, key := c.backing, kvstore.Key{ID: *at, Part: part}
	data := b.in.Data[:c.partBytes(part)]
	c.mu.Unlock()
	defer c.mu.Lock()
	return b.Store.Get(key, depth, data) && c.copyPart(part, index, data, true) == nil
}

// known is a has for the cache and the backing. It unlocks the cache while it asks the backing.
func (c *Cache) known(part int32, at *content) bool {
	if c.inMemory(part, at) {
		return true
	}
	store, length := c.backing.Store, c.partBytes(part)
	c.mu.Unlock()
	defer c.mu.Lock()
	return store.Has(kvstore.Key{ID: *at, Part: part}, length)
}

// Stored returns how many leading tokens Reuse finds, if pages are free for those that it reads
// from the backing. It returns 0 if Reuse reads none. It waits for the backing.
func (s *Sequence) Stored(tokens []int32) int {
	c := s.cache
	if c.backing == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.empty() {
		return 0
	}
	near := s.match(tokens, c.inMemory)
	far := s.match(tokens, c.known)
	s.contents = s.contents[:0]
	if far == near {
		return 0
	}
	return far * c.config.PageTokens
}
