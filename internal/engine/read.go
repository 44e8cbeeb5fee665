package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/heftai/heft/internal/draft"
)

// A draft model that joins reads the text as the model computes it: behind each pass it computes the tokens
// behind new hidden states, chunk by chunk. It has a KV cache of its own, with prefixes that it may have too.

// A reader is what the engine keeps to read with. Its states are valid until the model's next pass.
type reader struct {
	room     int          // hidden states that the planned pass may still return
	reads    []read       // from the last pass
	perToken draft.Recent // time per token read
	length   float64      // average number of tokens that a choice generates
	refused  int          // choices that were not worth reading
}

// A read is a part of a choice that the draft model reads: states, of which the first is at token at, more states
// behind them, and the token behind each.
type read struct {
	c            *choice
	at           int
	states, more []float32
	keep         []float32 // the state that c then keeps for the draft model's next guess
}

const (
	// firstRead and firstUnread are the initial shares of right first guesses with and without
	// the prompt.
	firstRead, firstUnread = 0.8, 0.6
	// firstLength is the initial average length of answers. lengths is the effective number of
	// lengths in the average.
	firstLength, lengths = 256, 16
	// readAgain is the number of choices not worth reading after which one is read, to measure
	// how well the draft model then guesses.
	readAgain = 32
)

// sealing is a Sequence whose pages can be excluded from reuse.
type sealing interface{ Seal() }

// reads reports whether the draft model should compute what a pass computes of c: the request
// allows it, there is room, and better guesses probably save more time than it takes.
func (e *Engine) reads(c *choice) bool {
	d := &e.drafter
	if c.reading {
		return true
	}
	n, left := c.pending(), c.max-len(c.tokens)
	if _, ok := c.seq.(rewinder); !ok || e.options.DraftTokens < 0 || e.options.OneByOne || left < 2 || n > promptShare*left {
		return false
	}
	if !d.loaded() || len(c.tokens) >= d.model.Context() || !e.fits(n) {
		return false
	}
	c.reading = e.options.DraftTokens > 0 || e.worthReading(n, left)
	if !c.reading && !c.refused {
		c.refused = true
		d.refused++
		c.reading = d.refused%readAgain == 0 && d.affordsReading(n, left)
	}
	return c.reading
}

// worthReading reports whether n tokens are worth reading for an answer of at most left tokens.
func (e *Engine) worthReading(n, left int) bool {
	d, costs := &e.drafter, &e.drafts.costs
	perToken := d.perToken.Seconds()
	if !e.affords() || d.told[1] < firstWeight && !d.affordsReading(n, left) {
		return false
	}
	if perToken == 0 {
		return true // to measure it
	}
	saved, ok := draft.Saves(costs, 1, 1, d.right[1], d.passes.Seconds())
	before, _ := draft.Saves(costs, 1, 1, d.right[0], d.passes.Seconds())
	return !ok || (saved-max(before, 0))*min(float64(left), d.length) > perToken*float64(n)
}

// fits reports whether n tokens, and those of others that the draft model still has to compute,
// fit into the free pages.
func (e *Engine) fits(n int) bool {
	kv := e.drafter.model.KV()
	if kv.Pages == 0 {
		return true
	}
	for _, c := range e.running {
		if c.reading && c.second != nil {
			n += len(c.tokens) - c.second.Len()
		} else if c.reading {
			n += len(c.tokens)
		}
	}
	return 2*n <= (kv.Pages-kv.Used)*kv.PageTokens
}

// noteLength records how many tokens a choice has generated.
func (d *drafter) noteLength(n int) {
	if n > 0 {
		d.length += (float64(n) - d.length) / lengths
	}
}

// begin creates a sequence of the draft model for c, for the state at token start and those after
// it. It reuses the cached part of the prompt before them. If that is not all of it, other
// choices cannot reuse the sequence's pages.
func (d *drafter) begin(c *choice, start int) bool {
	r := &c.stream.request
	seq, ok := d.sequence(c, fmt.Sprintf("%d %q %s", c.tokens[0], r.Adapter, r.Salt)) // the states depend on more than the choice's tokens
	if !ok {
		return false
	}
	known := 0
	if start > 0 && start < c.prompt {
		known = seq.Reuse(c.tokens[1 : start+2])
	}
	if s, ok := seq.(sealing); ok && known < start {
		s.Seal()
	}
	c.second, c.kept = seq, known
	return true
}

// informed returns 1 if the draft model has most of c's tokens, or is about to get them,
// otherwise 0.
func (d *drafter) informed(c *choice) int {
	if d.width == 0 || c.second == nil && len(c.states) == 0 {
		return 0
	}
	n := len(c.states) / d.width
	if c.second != nil {
		n += c.second.Len()
	}
	if 2*n < len(c.tokens) {
		return 0
	}
	return 1
}

// toRead queues the states v, the first of which is at token first, after those that c has.
func (d *drafter) toRead(c *choice, first int, v []float32) {
	r := read{c: c, at: first - len(c.states)/d.width, states: c.states, more: v}
	if c.end == c.seq.Len() && c.end+1 == len(c.tokens) { // the next guess needs the last state
		n := len(v) - d.width
		r.more, r.keep = v[:n], v[n:]
	}
	d.reads = append(d.reads, r)
}

// read lets the draft model compute the tokens after queued states.
func (e *Engine) read() {
	d := &e.drafter
	for len(d.reads) > 0 {
		n, begin := d.planReads(), time.Now()
		if n > 0 {
			if _, err := d.model.Forward(e.ctx, d.rows); err != nil {
				e.draftFailed(fmt.Errorf("engine: draft model: %w", err))
				break
			}
		}
		took := e.took(begin, true)
		d.spent += took
		first := d.perToken.Seconds() == 0
		if n > shortPass {
			d.perToken.Add(took / time.Duration(n))
		}
		d.reads = slices.DeleteFunc(d.reads, d.haveRead)
		if first && n > shortPass && e.options.DraftTokens == 0 {
			e.readOn()
		}
		if n == 0 {
			break
		}
	}
	clear(d.reads)
	d.reads = d.reads[:0]
}

// readOn stops reading for choices for which it is not worth the time, which is now known.
func (e *Engine) readOn() {
	d := &e.drafter
	for i := range d.reads {
		r := &d.reads[i]
		if c := r.c; !e.worthReading((len(r.states)+len(r.more))/d.width+c.pending(), c.max-len(c.tokens)) {
			d.stopReading(r)
		}
	}
	d.reads = slices.DeleteFunc(d.reads, d.haveRead)
}

// stopReading drops what is still to be read of r.
func (d *drafter) stopReading(r *read) {
	r.c.leaveDrafter()
	r.c.reading, r.states, r.more = false, nil, nil
}

// haveRead reports whether all of r is computed, or cannot be. Its choice then only has the kept
// state.
func (d *drafter) haveRead(r read) bool {
	if len(r.states)+len(r.more) > 0 {
		return false
	}
	if c := r.c; c.second != nil {
		c.kept = c.second.Len()
	}
	r.c.states = append(r.c.states[:0], r.keep...)
	return true
}

// planReads sets the rows of a pass and returns the number of its tokens.
func (d *drafter) planReads() int {
	d.rows = d.rows[:0]
	limits := d.model.Limits()
	budget := min(orAny(limits.Tokens), MaxRead, d.rowsAtOnce())
	n := 0
	for i := range d.reads {
		r := &d.reads[i]
		if len(r.states) == 0 {
			r.states, r.more = r.more, nil
		}
		c, k := r.c, min(len(r.states)/d.width, budget-n)
		if c.ended || c.seq == nil {
			r.states, r.more, r.keep = nil, nil, nil
			continue
		}
		if k == 0 || len(d.rows) == orAny(limits.Sequences) {
			continue
		}
		tokens := c.tokens[r.at+1:][:k]
		if !d.takes(c, r.at, tokens) {
			d.stopReading(r)
			continue
		}
		d.rows = append(d.rows, Row{Sequence: c.second, Tokens: tokens, PromptLen: c.prompt, Before: r.states[:k*d.width]})
		r.states, r.at = r.states[k*d.width:], r.at+k
		n += k
	}
	return n
}

// MaxRead is the maximum number of tokens in a pass in which a draft model reads.
const MaxRead = 512

// takes reports whether the draft model has room for tokens of c after the state at token at, and
// reserves it.
func (d *drafter) takes(c *choice, at int, tokens []int32) bool {
	if int(slices.Max(tokens)) >= d.vocab || c.second == nil && !d.begin(c, at) {
		return false
	}
	return c.second.Len()+len(tokens) <= d.model.Context() && c.second.Reserve(len(tokens)) == nil
}
