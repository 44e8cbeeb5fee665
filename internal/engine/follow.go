package engine

import "slices"

// A joiner is a Model that takes hidden states of another model in addition to tokens: a module for multi-token
// prediction. As a draft model it follows the model: from the hidden state at a token and from the token behind it,
// it guesses the next one; and from its own hidden state and that guess, one more.
type joiner interface {
	// Joins is the width of the hidden states; 0: the model takes none.
	Joins() int
}

// joins returns what m's Joins does, 0 if it has none.
func joins(m Model) int {
	if j, ok := m.(joiner); ok {
		return j.Joins()
	}
	return 0
}

// MaxStates is the most hidden states of a choice that are kept for the next run of a draft model that joins.
const MaxStates = 2 * (MaxDraftTokens + 1)

// following is what a choice keeps for a draft model that joins. second has the tokens that the draft model has read, each
// with the state before it: what the cache had of the prompt, and those from where the states are known without a gap.
type following struct {
	reading bool      // the draft model reads all tokens of the choice from here on
	refused bool      // that was not worth the time once
	states  []float32 // the model's, that the draft model has not had
	end     int       // tokens of the choice up to the last state
	kept    int       // tokens of second that came with the model's states
	carried []float32 // the draft model's state at the last guess
}

// follow asks for the hidden states of a row of c, if the draft model joins and the pass has room for them: of generated
// tokens, of tokens whose logits are wanted, and of those that the draft model should read.
func (e *Engine) follow(c *choice, r *Row) {
	d := &e.drafter
	n := len(r.Tokens)
	switch {
	case d.width == 0 || d.room == 0 || c.stream.request.Embed != PoolNone:
	case n <= d.room && (r.Logits == LogitsAll || c.decodes || n == 1 && r.Logits == LogitsLast || e.reads(c)):
		r.Hidden = HiddenAll
		d.room -= n
	case r.Logits != LogitsNone:
		r.Hidden = HiddenLast
		d.room--
	}
}

// followed keeps the hidden states of row i of a pass, after which c's sequence had end tokens. States of
// guesses that were wrong are not kept.
func (e *Engine) followed(c *choice, i, end int, logits Logits) {
	d := &e.drafter
	if d.width == 0 || c.ended || c.seq == nil || e.rows[i].Hidden == HiddenNone {
		return
	}
	var v []float32
	if h, ok := logits.(HiddenStates); ok {
		v = h.Hidden(i)
	}
	if len(v) == 0 || len(v)%d.width != 0 {
		e.draftFailed(errNoHidden)
		return
	}
	first := end - len(v)/d.width
	if first >= c.seq.Len() {
		return
	}
	v = v[:min(len(v), (c.seq.Len()-first)*d.width)]
	if first != c.end { // there is a gap
		c.leaveDrafter()
		c.states = c.states[:0]
	}
	c.end = first + len(v)/d.width
	if c.reading && len(c.states)+len(v) > MaxStates*d.width {
		d.toRead(c, first, v)
		return
	}
	if over := len(c.states) + len(v) - MaxStates*d.width; over > 0 { // the draft model did not run for a long time
		c.leaveDrafter()
		old := min(over, len(c.states))
		c.states, v = slices.Delete(c.states, 0, old), v[over-old:]
	}
	c.states = append(slices.Grow(c.states, MaxStates*d.width-len(c.states)), v...)
}

// stated reports whether the hidden state before the last of c's tokens is new to the draft model.
func (d *drafter) stated(c *choice) bool {
	return len(c.states) > 0 && c.end == c.seq.Len() && c.end+1 == len(c.tokens)
}

// joined is the row of a pass of a draft model that joins: the tokens behind new states, or the last guess.
func (d *drafter) joined(c *choice) Row {
	r := Row{Sequence: c.second, PromptLen: 1, Logits: LogitsLast, Hidden: HiddenLast}
	if n := len(c.states) / d.width; n > 0 {
		r.Tokens, r.Before = c.tokens[len(c.tokens)-n:], c.states
	} else {
		r.Tokens, r.Before, r.Guessed = c.guess[len(c.guess)-1:], c.carried, true
	}
	return r
}

// carry keeps the draft model's hidden state at the guess that row i of its pass has made.
func (d *drafter) carry(c *choice, i int, logits Logits) error {
	if d.width == 0 {
		return nil
	}
	h, ok := logits.(HiddenStates)
	if !ok || len(h.Hidden(i)) != d.width {
		return errNoHidden
	}
	if len(c.states) > 0 {
		c.states, c.kept = c.states[:0], c.second.Len()
	}
	c.carried = append(c.carried[:0], h.Hidden(i)...)
	return nil
}

// rewind takes guesses out of the sequence of the draft model.
func (d *drafter) rewind(c *choice) {
	known := len(c.tokens)
	if d.width > 0 {
		known = c.kept
	}
	if c.second == nil || c.second.Len() <= known {
		return
	}
	if n := c.second.(rewinder).Truncate(known); n < known && d.width > 0 {
		c.leaveDrafter() // its states are gone
	}
}
