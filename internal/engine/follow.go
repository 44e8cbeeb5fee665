package engine

import "slices"

// A joiner is a Model that takes hidden states of another model in addition to tokens: a module
// for multi-token prediction. As a draft model it follows the model. From the hidden state at a
// token and the next token it guesses the token after that; from its own hidden state and that
// guess it makes another guess.
type joiner interface {
	// Joins returns the width of the hidden states, or 0 if the model takes none.
	Joins() int
}

// joins returns the result of m's Joins, or 0 if m has no such method.
func joins(m Model) int {
	if j, ok := m.(joiner); ok {
		return j.Joins()
	}
	return 0
}

// MaxStates is the maximum number of hidden states of a choice that are kept for the next run of
// a draft model that joins.
const MaxStates = 2 * (MaxDraftTokens + 1)

// following is what a choice keeps for a draft model that joins. second holds the tokens that the
// draft model has computed, each with the preceding state: the cached part of the prompt, and the
// tokens from which on all states are known.
type following struct {
	reading bool      // the draft model computes all further tokens of the choice
	refused bool      // that was once not worth the time
	states  []float32 // the model's states that the draft model has not had
	end     int       // number of the choice's tokens up to the last state
	kept    int       // tokens of second that came with the model's states
	carried []float32 // the draft model's state at the last guess
}

// follow requests the hidden states of a row of c if the draft model joins and the pass has room
// for them: those of generated tokens, of tokens whose logits are requested, and of those that
// the draft model should compute.
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

// followed stores the hidden states of row i of a pass, after which c's sequence had end tokens.
// It drops states of wrong guesses.
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
	if over := len(c.states) + len(v) - MaxStates*d.width; over > 0 { // the draft model has not run for a long time
		c.leaveDrafter()
		old := min(over, len(c.states))
		c.states, v = slices.Delete(c.states, 0, old), v[over-old:]
	}
	c.states = append(slices.Grow(c.states, MaxStates*d.width-len(c.states)), v...)
}

// stated reports whether the hidden state before the last of c's tokens is new to the draft
// model.
func (d *drafter) stated(c *choice) bool {
	return len(c.states) > 0 && c.end == c.seq.Len() && c.end+1 == len(c.tokens)
}

// joined returns the row of a pass of a draft model that joins: the tokens after new states, or
// the last guess.
func (d *drafter) joined(c *choice) Row {
	r := Row{Sequence: c.second, PromptLen: 1, Logits: LogitsLast, Hidden: HiddenLast}
	if n := len(c.states) / d.width; n > 0 {
		r.Tokens, r.Before = c.tokens[len(c.tokens)-n:], c.states
	} else {
		r.Tokens, r.Before, r.Guessed = c.guess[len(c.guess)-1:], c.carried, true
	}
	return r
}

// carry stores the draft model's hidden state at the guess made by row i of its pass.
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

// rewind removes guesses from the sequence of the draft model.
func (d *drafter) rewind(c *choice) {
	known := len(c.tokens)
	if d.width > 0 {
		known = c.kept
	}
	if c.second == nil || c.second.Len() <= known {
		return
	}
	if n := c.second.(rewinder).Truncate(known); n < known && d.width > 0 {
		c.leaveDrafter() // its states are lost
	}
}
