package kvcache

import (
	"slices"

	"github.com/heftai/heft/internal/tensor"
)

// A discarder is memory that can return unused parts to the operating system.
type discarder interface {
	// Discard leaves the elements of t undefined until they are written.
	Discard(t tensor.Tensor)
}

// Resize sets the number of usable pages to n, at most Config.Pages, and returns the number that
// are usable now. To shrink, it discards free pages, those with reusable contents last, and
// returns their memory to the operating system. Pages that sequences hold stay: call it again
// when they are freed. Any goroutine may call it while another one uses the cache.
func (c *Cache) Resize(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := len(c.pages)
	n = max(min(n, most), 0)
	c.restore(len(c.withheld) - (most - n))
	before := len(c.withheld)
	for len(c.withheld) < most-n && c.unused > 0 {
		c.withheld = append(c.withheld, c.takeAway())
	}
	if len(c.withheld) > before {
		c.discard()
	}
	return c.usable()
}

// PageMemory returns how many pages are usable, and how many of them sequences hold. It is safe
// for concurrent use.
func (c *Cache) PageMemory() (usable, used int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable(), c.used()
}

func (c *Cache) usable() int { return len(c.pages) - len(c.withheld) }

// A shrinker is memory that can back parts by small pages.
type shrinker interface {
	// SmallPages backs t, which must not have been used yet, by pages of the smallest size.
	SmallPages(t tensor.Tensor)
}

// smallPages backs the pages that are not usable at first by small pages. Otherwise the one next
// to the usable pages would bring up to 2 MiB into memory for each layer.
func (c *Cache) smallPages() {
	if len(c.withheld) == 0 {
		return
	}
	for slot := range c.slots {
		m, ok := c.slots[slot].memory.(shrinker)
		if !ok {
			continue
		}
		all, n := c.tensors(slot)
		for _, t := range all[:n] {
			m.SmallPages(t.Slice(c.config.start(), c.config.Pages))
		}
	}
}

func (c *Cache) used() int { return len(c.pages) - c.unused - len(c.withheld) }

// takeAway removes the first free page from the list.
func (c *Cache) takeAway() int32 {
	p := c.free.first
	c.unlink(p)
	if c.pages[p].kept() {
		c.stats.Cached--
		c.unregister(p)
	}
	return p
}

// restore makes n withheld pages usable again. If there are fewer, it does nothing and returns
// false.
func (c *Cache) restore(n int) bool {
	if n > len(c.withheld) {
		return false
	}
	for ; n > 0; n-- {
		last := len(c.withheld) - 1
		c.pushFront(c.withheld[last])
		c.withheld = c.withheld[:last]
	}
	return true
}

// alone reports whether s holds all pages in use.
func (s *Sequence) alone() bool {
	own := s.statePages()
	for g := range s.tables {
		own += len(s.tables[g].pages) - s.tables[g].held
	}
	return own >= s.cache.used()
}

// discard returns the memory of the withheld pages, adjacent pages together, because memory has
// larger pages than the cache.
func (c *Cache) discard() {
	slices.Sort(c.withheld)
	for i := 0; i < len(c.withheld); {
		first, n := c.withheld[i], 1
		for i+n < len(c.withheld) && c.withheld[i+n] == first+int32(n) {
			n++
		}
		for slot := range c.slots {
			m, ok := c.slots[slot].memory.(discarder)
			if !ok {
				continue
			}
			all, count := c.tensors(slot)
			for _, t := range all[:count] {
				m.Discard(t.Slice(int(first), int(first)+n))
			}
		}
		i += n
	}
}
