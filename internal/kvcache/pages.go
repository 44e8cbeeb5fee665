package kvcache

import (
	"crypto/sha256"
	"encoding/binary"
)

// list is a doubly linked list threaded through the pages' links.
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

// take returns the page that has been free longest and discards its contents. A page must be
// free.
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
		if c.pages[p].kept() {
			c.stats.Cached--
		}
	}
	c.pages[p].refs++
}

// drop removes a reference from a page. A free page goes to the end of the free list if its
// contents can be reused, otherwise to the front.
func (c *Cache) drop(p int32) {
	if c.pages[p].refs--; c.pages[p].refs > 0 {
		return
	}
	if !c.pages[p].kept() {
		c.pushFront(p)
		return
	}
	c.stats.Cached++
	c.pushBack(p)
}

// content identifies the tokens of a full page, all tokens before it, the scope and the salt. The
// hash is collision-resistant, so a page can be found whether or not the pages before it are
// still cached.
type content [sha256.Size]byte

// contentOf returns the content of a page of tokens that follows the page before, in the scope of
// s.
func (s *Sequence) contentOf(before *content, tokens []int32) content {
	b := append(s.cache.text[:0], s.cache.secret[:]...)
	b = binary.LittleEndian.AppendUint64(b, s.scope)
	b = append(b, s.salt[:]...)
	if before != nil {
		b = append(b, before[:]...)
	}
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return sha256.Sum256(b)
}

func (c *Cache) bucket(group int, at *content) *int32 {
	return &c.buckets[(binary.LittleEndian.Uint64(at[:])+uint64(group))&uint64(len(c.buckets)-1)]
}

// find returns the registered page of a group with this content, or none.
func (c *Cache) find(group int, at *content) int32 {
	for p := *c.bucket(group, at); p != none; p = c.pages[p].chain {
		if have := &c.pages[p]; have.content == *at && have.group == int32(group) {
			return p
		}
	}
	return none
}

// register makes the full page p available for reuse, unless an equal page is registered.
func (c *Cache) register(p int32, group int, at *content) {
	if c.find(group, at) != none {
		return
	}
	have, head := &c.pages[p], c.bucket(group, at)
	have.group, have.content, have.registered = int32(group), *at, true
	have.chain, *head = *head, p
}

// unregister removes p, and the snapshot for which it counts, from the contents that can be
// reused.
func (c *Cache) unregister(p int32) {
	have := &c.pages[p]
	if have.state != 0 {
		c.forgetState(have.state, p)
	}
	if !have.registered {
		return
	}
	link := c.bucket(int(have.group), &have.content)
	for *link != p {
		link = &c.pages[*link].chain
	}
	*link = have.chain
	have.registered = false
}
