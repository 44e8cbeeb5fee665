package kvcache

import "github.com/heftai/heft/internal/tensor"

// touchStep is how much memory is brought in at once: a huge page.
const touchStep = 2 << 20

// A toucher is memory whose parts can be brought in before they are written.
type toucher interface {
	// Touch brings bytes [begin, end) of t in. It changes no element.
	Touch(t tensor.Tensor, begin, end int64)
}

// Touch brings the memory for the first n tokens of a sequence in, so that the first pass does not
// wait while the system clears it. It stops if more returns false, if a sequence takes pages, or if
// Resize takes away those of the n tokens; it reports whether it has touched all. It is safe for
// concurrent use.
func (c *Cache) Touch(n int, more func() bool) bool {
	pages := min(c.Groups()*c.config.PagesFor(n), c.config.start())
	for slot := range c.slots {
		m, ok := c.slots[slot].memory.(toucher)
		if !ok {
			continue
		}
		all, count := c.tensors(slot)
		for _, t := range all[:count] {
			t = t.Slice(0, pages)
			for at := int64(0); at < t.Bytes(); at += touchStep {
				if !more() || !c.touch(m, t, at) {
					return false
				}
			}
		}
	}
	return true
}

// touch brings the step of t at the given byte in. t is the memory of the first pages. It reports
// whether these are the ones that sequences take first; if not, it does nothing.
func (c *Cache) touch(m toucher, t tensor.Tensor, at int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.free.first
	for p := range int32(t.Rows()) {
		if next != p {
			return false
		}
		next = c.pages[p].next
	}
	m.Touch(t, at, min(at+touchStep, t.Bytes()))
	return true
}
