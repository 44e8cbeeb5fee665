package residency

import (
	"errors"
	"slices"
)

const (
	aheadUses = 64 // the number of expected uses from which segments are read ahead
	aheadPart = 8  // the part of the limit that segments take which were read ahead and are not used yet
)

// errTooEarly ends a read ahead.
var errTooEarly = errors.New("no room to read ahead")

// readAhead starts to bring the segments that are expected next, if there are any, in a goroutine of its own, one
// at a time. It needs mu.
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

// bringAhead brings g for a use, and then others that are expected.
func (c *Changing) bringAhead(g *Changed, use int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g != nil {
		if err := c.bring(g, use); err != nil {
			g.unread = err != errTooEarly // any other error comes again when g is acquired
			break
		}
		g, use = c.expected()
	}
	c.ahead = false
	c.moving--
	c.moved.Broadcast()
}

// expected returns the first segment that is expected, is not in memory, and finds room there without those that
// are used before it, and the number of its use; nil if there is none. More than one segment take an eighth of
// the limit at most: in an order that goes round, each that is read ahead displaces one that could have stayed.
// It needs mu.
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

// fits reports whether there is room for n bytes without segments that are used before a use. It needs mu.
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

// victim returns the segment in memory that is needed last: by the forecast, if it is certain, else the one that
// was used least recently. Those that are used before a use do not count. It needs mu.
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

// movable reports whether g is in memory and may leave it.
func (g *Changed) movable() bool { return g.place == inMemory && g.pins == 0 && !g.stays }
