package cpu

import "sync/atomic"

// The units of a task are divided among the workers. Each gets a contiguous run, so that it reads
// rows of a matrix sequentially, from memory near it. A worker that has finished its share takes
// half of the rest of another's, on its own memory node if possible. The result of a unit does
// not depend on the worker.
//
// A worker's share is one word: generation<<32 | begin<<16 | end, in groups of units. A word of
// an earlier generation means that the share is still whole. Starting a task therefore writes
// nothing to the workers' cache lines.

const (
	groupBits      = 16
	mostGroups     = 1<<groupBits - 1
	lastGeneration = 1<<32 - 1
)

// units describes the units of one task, in groups.
type units struct {
	generation uint64
	count      int // number of units
	group      int // units per group
	groups     int
	workers    int
}

func newUnits(generation uint64, count, workers int) units {
	group := (count + mostGroups - 1) / mostGroups
	return units{generation: generation, count: count, group: group, groups: (count + group - 1) / group, workers: workers}
}

// own returns the whole share of worker i.
func (u *units) own(i int) (begin, end int) {
	return u.groups * i / u.workers, u.groups * (i + 1) / u.workers
}

// left returns the rest of worker i's share, given its word.
func (u *units) left(word uint64, i int) (begin, end int) {
	if word>>(2*groupBits) != u.generation {
		return u.own(i)
	}
	return int(word >> groupBits & mostGroups), int(word & mostGroups)
}

func (u *units) word(begin, end int) uint64 {
	return u.generation<<(2*groupBits) | uint64(begin)<<groupBits | uint64(end)
}

// span returns the units of groups [begin, end).
func (u *units) span(begin, end int) (int, int) {
	return begin * u.group, min(end*u.group, u.count)
}

// take returns the next units for w, from its own share or from half of another's, which becomes
// its own. ok is false if no worker has any left.
func (p *pool) take(w *worker) (begin, end int, ok bool) {
	u := &p.units
	if g, ok := u.first(&w.share, w.index); ok {
		begin, end = u.span(g, g+1)
		return begin, end, true
	}
	for i, near := range w.victims {
		n, first, count := near.End-near.Begin, w.index, near.End-near.Begin
		if i == 0 { // w's own node; w is one of the victims
			first, count = w.index-near.Begin+1, n-1
		}
		for k := range count {
			if p.failed.Load() {
				return 0, 0, false
			}
			victim := p.workers[near.Begin+(first+k)%n]
			if a, b, ok := u.half(&victim.share, victim.index); ok {
				w.share.Store(u.word(a+1, b)) // the share was empty, so no other worker changes it
				begin, end = u.span(a, a+1)
				return begin, end, true
			}
		}
	}
	return 0, 0, false
}

// first takes the first group of a share.
func (u *units) first(share *atomic.Uint64, i int) (group int, ok bool) {
	for {
		word := share.Load()
		begin, end := u.left(word, i)
		if begin >= end {
			return 0, false
		}
		if share.CompareAndSwap(word, u.word(begin+1, end)) {
			return begin, true
		}
	}
}

// half takes the second half of a share, rounded up.
func (u *units) half(share *atomic.Uint64, i int) (begin, end int, ok bool) {
	for {
		word := share.Load()
		begin, end = u.left(word, i)
		if begin >= end {
			return 0, 0, false
		}
		middle := begin + (end-begin)/2
		if share.CompareAndSwap(word, u.word(begin, middle)) {
			return middle, end, true
		}
	}
}
