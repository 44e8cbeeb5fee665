package draft

import "time"

const (
	maxCost = 64   // tokens of the largest pass whose duration is kept
	recent  = 5    // durations of which the median counts
	enough  = 3    // passes without guesses, before the first with guesses
	stale   = 1024 // passes after which a duration is measured anew
	slope   = 0.03 // cost of a further token before one is measured, as a part of a pass
)

// A series is the last durations of passes with one number of tokens.
type series struct {
	seconds [recent]float64
	n       int // ever recorded
	last    int // the pass that was recorded last
	median  float64
}

// Costs are how long passes take, by their number of tokens. The zero value knows nothing.
type Costs struct {
	of     [maxCost + 1]series
	passes int
}

// Record notes that a pass of n tokens, all of them at the ends of texts, took d.
func (c *Costs) Record(n int, d time.Duration) {
	c.passes++
	if n < 1 || n > maxCost {
		return
	}
	s := &c.of[n]
	if c.old(s) {
		s.n = 0
	}
	s.seconds[s.n%recent] = d.Seconds()
	s.n++
	s.last = c.passes
	s.median = median(s.seconds[:min(s.n, recent)])
}

func (c *Costs) old(s *series) bool { return s.n > 0 && c.passes-s.last > stale }

func (c *Costs) known(n int) bool { return c.of[n].n > 0 && !c.old(&c.of[n]) }

// ready reports whether passes of n tokens are known well.
func (c *Costs) ready(n int) bool { return n <= maxCost && c.known(n) && c.of[n].n >= enough }

// reach is the largest pass that may be tried: twice the largest that is known, and at least two tokens
// more than n.
func (c *Costs) reach(n int) int {
	most := n
	for i := maxCost; i > n; i-- {
		if c.known(i) {
			most = i
			break
		}
	}
	return min(max(2*most, n+2), maxCost)
}

// seconds estimates a pass of n tokens from those around it. base is a known number, at most n.
func (c *Costs) seconds(n, base int) float64 {
	below := n
	for !c.known(below) {
		if below--; below < base {
			return c.of[base].median // not reached: base is known
		}
	}
	low := c.of[below].median
	if below == n {
		return low
	}
	for above := n + 1; above <= maxCost; above++ {
		if c.known(above) {
			return low + (c.of[above].median-low)*float64(n-below)/float64(above-below)
		}
	}
	rise := slope * c.of[base].median
	if below > base {
		rise = max(0, (low-c.of[base].median)/float64(below-base))
	}
	return low + rise*float64(n-below)
}

// median sorts a copy of at most recent values.
func median(v []float64) float64 {
	var sorted [recent]float64
	n := copy(sorted[:], v)
	for i := 1; i < n; i++ {
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return sorted[n/2]
}

// Recent are the last durations of passes of one kind. The zero value knows none.
type Recent struct{ of series }

// Add adds a duration.
func (r *Recent) Add(d time.Duration) {
	s := &r.of
	s.seconds[s.n%recent] = d.Seconds()
	s.n++
	s.median = median(s.seconds[:min(s.n, recent)])
}

// Seconds is the median of the last durations, 0 if there is none.
func (r *Recent) Seconds() float64 { return r.of.median }
