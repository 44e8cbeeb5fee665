package engine

import (
	"math"
	"time"
)

// A budget bounds what a draft model may lose: whether it pays is learnt by asking it, which takes time that its
// guesses may not save. It begins with some passes, fills with a small part of the time of all passes and with what
// guesses save, and asking empties it. A draft model is not asked while it is overdrawn. So the draft model has never lost more
// than firstCredit passes, allowance of all the time, and what was asked of it when it overdrew.
type budget struct {
	balance float64       // seconds, at most mostCredit passes
	plain   float64       // seconds of a pass without guesses; 0: not known
	spent   time.Duration // by the draft model since the last pass of the model
}

const (
	allowance   = 0.005
	firstCredit = 2
	mostCredit  = 32
	// firstRows is how many tokens of a prompt a draft model computes before it is known how long that takes.
	firstRows = 32
)

// affords reports whether the draft model may be asked.
func (e *Engine) affords() bool { return e.options.DraftTokens > 0 || e.drafter.balance >= 0 }

// affordsReading reports whether a draft model may compute n tokens of a prompt for an answer of at most left tokens, though it
// is not known whether that pays: what it takes is left, or a small part of the answer's time.
func (d *drafter) affordsReading(n, left int) bool {
	seconds := d.perToken.Seconds() * float64(n)
	return seconds <= max(d.balance, allowance*d.plain*min(float64(left), d.length))
}

// rowsAtOnce bounds the tokens of a prompt in a pass of the draft model.
func (d *drafter) rowsAtOnce() int {
	if d.perToken.Seconds() == 0 {
		return firstRows
	}
	return math.MaxInt
}

// A guessed is what a pass has verified.
type guessed struct {
	choices int // that the pass was to yield a token of
	guesses int // all that it verified
	drafted int // those of the draft model
	right   int // of drafted
}

// add counts c in, of whose guesses so many were right.
func (g *guessed) add(c *choice, right int) {
	if c.chunk-c.taken == 1 || c.decodes {
		g.choices++
	}
	if g.guesses += c.taken; c.drafted {
		g.drafted, g.right = g.drafted+c.taken, g.right+right
	}
}

// settle counts what the draft model's guesses in a pass have saved, and what they took.
func (e *Engine) settle(tokens int, g guessed) {
	d := &e.drafter
	if d.model == nil {
		return
	}
	base := tokens - g.guesses
	if len(e.prompts) > 0 {
		base = g.choices
	}
	without, with := e.drafts.costs.Pass(base, base+g.guesses)
	if without > 0 {
		if d.plain == 0 {
			d.balance += firstCredit * without
		}
		d.plain = without
	}
	d.balance += allowance*e.passed.Seconds() - d.spent.Seconds()
	d.spent = 0
	if without > 0 && g.drafted > 0 {
		d.balance += without*float64(g.right)/float64(g.choices) - max(with-without, 0)*float64(g.drafted)/float64(g.guesses)
	}
	d.balance = min(d.balance, mostCredit*d.plain)
}
