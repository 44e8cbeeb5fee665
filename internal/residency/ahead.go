package residency

import (
	"errors"
	"slices"
)

const (
	aheadUses = 64 // the number of predicted uses that are read ahead
	aheadPart = 8  // segments that are read ahead and not used yet take at most 1/aheadPart of the limit
)

// errTooEarly ends a read ahead.
var errTooEarly = errors.New("no room to read ahead")

// readAhead starts a goroutine that loads the segments that are predicted to be used next, one at
// a time. The caller holds mu.
func (c *Changing) readAhead() {
	if c.ahead || c.limit == 0 {
		return
	}
	g, use := c.expected()
	if g == nil {
		return
	}
	g.place, g.early = coming, true // for the next call
	c.ahead = true
	c.moving++
	go c.bringAhead(g, use)
}

// bringAhead loads g for a predicted use, and then the segments that are predicted after it.
func (c *Changing) bringAhead(g *Changed, use int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g != nil {
		if err := c.bring(g, use); err != nil {
			g.unread = err != errTooEarly // other errors recur when g is acquired
			break
		}
		g, use = c.expected()
	}
	c.ahead = false
	c.moving--
	c.moved.Broadcast()
}

// expected returns the first predicted segment that is not in memory and fits without evicting
// segments that are used before it. It also returns the number of its use. It returns nil if
// there is none. If more than one segment is read ahead, they take at most an eighth of the
// limit: in a cyclic order, each segment that is read ahead evicts one that could have stayed.
// The caller holds mu.
func (c *Changing) expected() (*Changed, int) {
	if c.closed || c.full || !c.forecast.certain() {
		return nil, 0
	}
	list, first := c.forecast.coming(aheadUses)
	i := slices.IndexFunc(list, func(number int) bool { return c.list[number].place == inFile })
	if i < 0 {
		return nil, 0
	}
	g, early := c.list[list[i]], int64(0)
	for _, other := range c.list {
		if other.early {
			early += roomOf(other)
		}
	}
	if n := roomOf(g); g.unread || early > 0 && early+n > c.limit/aheadPart || !c.fits(n, first+i) {
		return nil, 0
	}
	return g, first + i
}

// fits reports whether n bytes fit without evicting segments that are used before the given use.
// The caller holds mu.
func (c *Changing) fits(n int64, use int) bool {
	free := c.limit - c.stats.Held
	for i, g := range c.list {
		if free >= n {
			break
		}
		if g.movable() && c.forecast.next(i) > use {
			free += roomOf(g)
		}
	}
	return free >= n
}

// victim returns the segment in memory that is needed last: by the forecast if it is certain,
// otherwise the least recently used one. It ignores segments that are used before the given use.
// The caller holds mu.
func (c *Changing) victim(use int) (victim *Changed) {
	last, certain := 0, c.forecast.certain()
	for i, g := range c.list {
		if !g.movable() {
			continue
		}
		next := 0
		if certain {
			next = c.forecast.next(i)
		}
		if use > 0 && next <= use {
			continue
		}
		if victim == nil || next > last || next == last && g.used < victim.used {
			victim, last = g, next
		}
	}
	return victim
}

// movable reports whether g is in memory and may be evicted.
func (g *Changed) movable() bool { return g.place == inMemory && g.pins == 0 && !g.stays }
