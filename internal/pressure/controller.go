package pressure

import "time"

const (
	// calm is the interval of readings, close the one while memory is short.
	calm, near = 250 * time.Millisecond, 50 * time.Millisecond
	// steady is how long a higher limit must have held.
	steady = 2 * time.Second
	// stalled is the share of an interval that tasks waited for memory from which on it is short.
	stalled = 0.05
	// coarse is the smallest rise that is worth moving weights for, as a part of the target.
	coarse = 64
)

// A Reading is what the system says of memory. Bytes.
type Reading struct {
	Limit int64 // that the process may hold; 0 means no limit
	Held  int64 // that the process holds; 0 means unknown
	// Stall is the total time that tasks have waited for memory (PSI), a hint.
	Stall time.Duration
}

// Limits bound the targets of a controller, in bytes.
type Limits struct {
	Most  int64 // the highest target
	Start int64 // the limit at the start, which the plan was made for; 0 means Most
	Least int64 // the minimum that the process needs to run
}

// A Decision is what a controller makes of a reading.
type Decision struct {
	Target  int64 // bytes to hold from now on, at least Limits.Least
	Changed bool  // Target differs from that of the decision before
	// Short is by how much the limit is below the minimum. Warn is set once each time it begins to be.
	Short int64
	Warn  bool
	Next  time.Duration // until the next reading
}

// A Controller decides what to hold. It is not safe for concurrent use.
type Controller struct {
	limits Limits
	target int64
	short  bool

	last    time.Time
	stall   time.Duration
	rising  time.Time // since when the limit is above the target; zero if it is not
	rise    int64     // the lowest limit since then
	started bool
}

// NewController returns a controller whose target is l.Start.
func NewController(l Limits) *Controller {
	if l.Start <= 0 {
		l.Start = l.Most
	}
	l.Least = min(l.Least, l.Most)
	return &Controller{limits: l, target: l.Start}
}

// Step takes the reading of a moment. Moments must not go back.
func (c *Controller) Step(now time.Time, r Reading) Decision {
	limit := c.limits.Most
	if r.Limit > 0 {
		limit = min(limit, r.Limit)
	}
	d := Decision{Short: max(0, c.limits.Least-limit), Next: calm}
	d.Warn = d.Short > 0 && !c.short
	c.short = d.Short > 0
	if next := c.follow(now, max(limit, c.limits.Least)); next != c.target {
		c.target, d.Changed = next, true
	}
	d.Target = c.target
	if d.Changed || c.stalls(now, r.Stall) || r.Held > c.target {
		d.Next = near
	}
	return d
}

// follow returns the target for a limit.
func (c *Controller) follow(now time.Time, limit int64) int64 {
	if limit <= c.target {
		c.rising = time.Time{}
		return limit
	}
	if c.rising.IsZero() {
		c.rising, c.rise = now, limit
	}
	c.rise = min(c.rise, limit)
	if now.Sub(c.rising) < steady {
		return c.target
	}
	rise := c.rise
	c.rising, c.rise = now, limit
	if rise-c.target < c.target/coarse && rise < c.limits.Most {
		return c.target
	}
	return rise
}

// stalls reports whether tasks waited for memory for a considerable part of the time since the last
// reading.
func (c *Controller) stalls(now time.Time, total time.Duration) bool {
	waited, passed := total-c.stall, now.Sub(c.last)
	first := !c.started
	c.stall, c.last, c.started = total, now, true
	return !first && passed > 0 && float64(waited) > stalled*float64(passed)
}
