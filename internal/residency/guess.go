package residency

import (
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// Guesses are predictions of a router's choice: the experts that the router chooses for the
// hidden states of an earlier block. They are read while that block computes, so that the disk is
// busy until the router has run. A wrong guess costs a read, so the store counts right guesses by
// their position in the list: the first is the most likely.

const (
	mostGuesses = 32 // of a list that are counted and read
	// worthwhile is the minimum share of right guesses for which guesses are read. A wrong guess
	// costs its read; a right one saves only the time in which the disk would have been idle,
	// about 20 %.
	worthwhile = 0.85
	// guessRate is the weight of one guess in the moving average of that share.
	guessRate = 1.0 / 32
	// guessTrial is the number of lists that are counted before guessing pauses, if none of their
	// positions is worthwhile.
	guessTrial = 96
	// The first pause is leastPause units long. Each further pause is twice as long, up to
	// mostPause.
	leastPause, mostPause = 256, 1 << 14
	// guessPart bounds one list to 1/guessPart of the slots: its experts evict others, which
	// would have been hits.
	guessPart = 64
)

// guesses count how many guesses were right.
type guesses struct {
	right [mostGuesses]float64 // share of right guesses by position
	stack *stack               // stack of the last guesses; nil once they are counted
	list  []guess
	tried int // lists since the last pause, or the last one that was worthwhile
	pause int // length of the last pause
	left  int // units until this pause ends
	want  []int32
	ids   []int
}

// A guess is an expert that was not in memory when it was guessed.
type guess struct {
	expert   int32
	position int
}

// Guesses reports whether to predict experts of the stack m, whose block runs next. It also
// requires that the prediction can use params, parameters of that block: they are in memory, and
// stay there while the preceding block computes.
func (s *Store) Guesses(m *meta.Module, params []*meta.Param) bool {
	st := s.stacks[m]
	if st == nil || s.experts == nil || s.whole || !s.experts.evicts() || s.guessesAtOnce() == 0 {
		return false
	}
	if !s.policy.GuessAll && s.guesses.paused() {
		return false
	}
	s.copies.keepNext()
	return !slices.ContainsFunc(params, func(p *meta.Param) bool { return !s.stays(p) })
}

// guessesAtOnce returns the maximum number of experts of one list that are read.
func (s *Store) guessesAtOnce() int {
	if s.policy.GuessAll {
		return mostGuesses
	}
	return s.experts.size() / guessPart
}

// stays reports whether p stays in memory while the preceding unit computes.
func (s *Store) stays(p *meta.Param) bool {
	h := s.holders[p]
	if h == nil || h.shown == nil {
		return false
	}
	g := h.shown
	return g.device == devicemap.CPU && !g.converts() && !g.displaced.Load() && (g.place == inMemory || g.place == mapped)
}

// GuessExperts announces experts of a stack that WantExperts will probably request next, the most
// likely first. They are read after the requested ones.
func (s *Store) GuessExperts(m *meta.Module, experts []int32) {
	st, g := s.stacks[m], &s.guesses
	if st == nil || s.experts == nil {
		return
	}
	g.stack = st
	g.tried++
	g.list, g.want, g.ids = g.list[:0], g.want[:0], g.ids[:0]
	for i, e := range experts[:min(len(experts), mostGuesses)] {
		id := st.first + int(e)
		if int(e) >= len(st.experts) || st.experts[e].device != devicemap.Disk || s.experts.has(id) {
			continue
		}
		g.list = append(g.list, guess{e, i})
		if len(g.ids) < s.guessesAtOnce() && (s.policy.GuessAll || g.right[i] >= worthwhile) {
			s.expertLoad(st, int(e))
			g.want, g.ids = append(g.want, e), append(g.ids, id)
		}
	}
	if len(g.ids) > 0 {
		s.experts.expect(st.layer, g.want, g.ids)
	}
}

// paused reports whether guessing pauses for a unit.
func (g *guesses) paused() bool {
	if g.left > 0 {
		g.left--
		return true
	}
	if slices.ContainsFunc(g.right[:], func(share float64) bool { return share >= worthwhile }) {
		g.tried, g.pause = 0, 0
	} else if g.tried >= guessTrial {
		g.tried, g.pause = 0, min(max(2*g.pause, leastPause), mostPause)
		g.left = g.pause
	}
	return g.left > 0
}

// judge counts which of the last guesses were right.
func (g *guesses) judge(st *stack, chosen []int32) {
	if g.stack != st {
		return
	}
	g.stack = nil
	for _, guess := range g.list {
		right := 0.0
		if slices.Contains(chosen, guess.expert) {
			right = 1
		}
		at := &g.right[guess.position]
		*at += guessRate * (right - *at)
	}
}

// evicts reports whether there are fewer slots than loads.
func (r *expertSlots) evicts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size() < len(r.loads)
}

// has reports whether load id is in a slot or being read.
func (r *expertSlots) has(id int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.where[id] >= 0
}

// expect assigns slots to loads of some segments of a layer, as far as the cache has room for
// them, and reads them after the requested ones.
func (r *expertSlots) expect(layer int, segments []int32, ids []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assign(r.cache.Admit(layer, segments))
	r.expected = append(r.expected[:0], ids...)
	r.start(Next)
}

// nextExpected returns the first expected load that is not in a slot, and the slot to read it into, or -1.
func (r *expertSlots) nextExpected() (id, at int) {
	for _, id := range r.expected {
		at := r.home[id]
		if r.where[id] >= 0 || !r.cache.Resident(int32(id)) || at < 0 || r.slots[at].block == nil {
			continue
		}
		if s := &r.slots[at]; !s.busy() && (s.load < 0 || !slices.Contains(r.requests, s.load)) {
			return id, at
		}
	}
	return 0, -1
}

// disappoint withdraws expected loads that were not requested and of which nothing was read yet.
func (r *expertSlots) disappoint(requested []int) {
	for _, id := range r.expected {
		if slices.Contains(requested, id) {
			continue
		}
		at := r.where[id]
		switch {
		case at < 0:
		case r.slots[at].state == slotLoading && r.mover.withdraw(&r.slots[at].transfer):
			r.drop(&r.slots[at])
			r.moves.Done()
		default:
			continue
		}
		if r.cache.Resident(int32(id)) {
			r.cache.Drop(int32(id))
			r.free = append(r.free, r.home[id])
			r.home[id] = -1
		}
	}
	r.expected = r.expected[:0]
}
