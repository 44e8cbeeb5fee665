package kvcache

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// list is a doubly linked list through the links of pages.
type list struct{ first, last int32 }

func (c *Cache) pushBack(p int32) {
	c.pages[p].prev, c.pages[p].next = c.free.last, none
	if c.free.last == none {
		c.free.first = p
	} else {
		c.pages[c.free.last].next = p
	}
	c.free.last = p
	c.unused++
}

func (c *Cache) pushFront(p int32) {
	c.pages[p].prev, c.pages[p].next = none, c.free.first
	if c.free.first == none {
		c.free.last = p
	} else {
		c.pages[c.free.first].prev = p
	}
	c.free.first = p
	c.unused++
}

func (c *Cache) unlink(p int32) {
	prev, next := c.pages[p].prev, c.pages[p].next
	if prev == none {
		c.free.first = next
	} else {
		c.pages[prev].next = next
	}
	if next == none {
		c.free.last = prev
	} else {
		c.pages[next].prev = prev
	}
	c.unused--
}

// take hands out the page that has been free longest, forgetting what it held. The
// caller knows that one is free.
func (c *Cache) take() int32 {
	p := c.free.first
	c.hold(p)
	c.unregister(p)
	return p
}

// hold adds a reference to a page.
func (c *Cache) hold(p int32) {
	if c.pages[p].refs == 0 {
		c.unlink(p)
		if c.pages[p].serial != 0 {
			c.stats.Cached--
		}
	}
	c.pages[p].refs++
}

// drop takes a reference away. A page whose contents cannot be reused is the next to
// be taken, one that can be the last.
func (c *Cache) drop(p int32) {
	if c.pages[p].refs--; c.pages[p].refs > 0 {
		return
	}
	if c.pages[p].serial == 0 {
		c.pushFront(p)
		return
	}
	c.stats.Cached++
	c.pushBack(p)
}

// pageTokens are the tokens of page p.
func (c *Cache) pageTokens(p int32) []int32 {
	n := c.config.PageTokens
	return c.tokens[int(p)*n : (int(p)+1)*n]
}

// hash is that of a page's tokens, its scope and what comes before it. Its seed is
// the process's own, so that no prompt can be made to collide.
func (c *Cache) hash(scope, parent uint64, tokens []int32) uint64 {
	b := binary.LittleEndian.AppendUint64(c.key[:0], scope)
	b = binary.LittleEndian.AppendUint64(b, parent)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return maphash.Bytes(c.seed, b)
}

func (c *Cache) bucket(hash uint64) *int32 { return &c.buckets[hash&uint64(len(c.buckets)-1)] }

// find is the registered page with these contents, or none.
func (c *Cache) find(scope, parent uint64, tokens []int32) int32 {
	h := c.hash(scope, parent, tokens)
	for p := *c.bucket(h); p != none; p = c.pages[p].chain {
		at := &c.pages[p]
		if at.hash == h && at.parent == parent && at.scope == scope && slices.Equal(c.pageTokens(p), tokens) {
			return p
		}
	}
	return none
}

// register offers the full page p for reuse and returns the serial that its successor
// is chained to: that of an equal page if there is one already.
func (c *Cache) register(p int32, scope, parent uint64) uint64 {
	tokens := c.pageTokens(p)
	if same := c.find(scope, parent, tokens); same != none {
		return c.pages[same].serial
	}
	c.serial++
	at := &c.pages[p]
	at.hash, at.scope, at.parent, at.serial = c.hash(scope, parent, tokens), scope, parent, c.serial
	head := c.bucket(at.hash)
	at.chain, *head = *head, p
	return at.serial
}

// unregister takes p out of the table, if it is there.
func (c *Cache) unregister(p int32) {
	at := &c.pages[p]
	if at.serial == 0 {
		return
	}
	link := c.bucket(at.hash)
	for *link != p {
		link = &c.pages[*link].chain
	}
	*link = at.chain
	at.serial = 0
}
