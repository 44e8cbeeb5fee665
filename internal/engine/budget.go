package engine

import (
	"errors"
	"math"
	"time"
)

// A budget bounds the time that a draft model may lose. Only running the draft model shows whether it pays, and that
// takes time that its guesses may not save. The budget starts with the time of some passes. A small part of the time of
// all passes and the time that guesses save are added; the time of the draft model is subtracted. While the budget is
// negative, the draft model does not run. It therefore never loses more than firstCredit passes, the share allowance of
// all time, and the run that overdrew the budget.
type budget struct {
	balance float64       // seconds, at most mostCredit passes
	plain   float64       // seconds of a pass without guesses; 0: not known
	spent   time.Duration // by the draft model since the last pass of the model

	// Of the last passes, the recent ones counted more: seconds with guesses, and for the same tokens without.
	took, would float64
	judged      int // passes until they are compared
}

// ErrDraftSlow is the reason why an engine drops a draft model whose guesses save less time than its memory costs.
var ErrDraftSlow = errors.New("engine: the draft model's guesses save less time than the memory that it takes costs")

// judgedPasses is after how many passes the gain of a draft model is compared with Options.DraftNeeds.
const judgedPasses = 32

const (
	allowance   = 0.005
	firstCredit = 2
	mostCredit  = 32
	// firstRows is how many tokens of a prompt a draft model computes before it is known how long that takes.
	firstRows = 32
)

// FixTimes replaces the measured times of passes by the return value of took, whose argument tells passes of the draft model
// from those of the model. Whether guesses are made, and whether a draft model pays, depends on nothing else that differs
// between machines and runs. It is for tests, before the first request. The engine calls took in its goroutine.
func (e *Engine) FixTimes(took func(draft bool) time.Duration) { e.fixed = took }

// took returns how long a pass took that began at begin: one of the draft model or of the model.
func (e *Engine) took(begin time.Time, draft bool) time.Duration {
	if e.fixed != nil {
		return e.fixed(draft)
	}
	return time.Since(begin)
}

// affords reports whether the budget allows to run the draft model.
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

// A guessed counts the guesses that a pass has verified.
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
	saved, took := 0.0, d.spent.Seconds()
	if d.spent = 0; without > 0 && g.drafted > 0 {
		saved = without * float64(g.right) / float64(g.choices)
		took += max(with-without, 0) * float64(g.drafted) / float64(g.guesses)
	}
	d.balance = min(d.balance+allowance*e.passed.Seconds()+saved-took, mostCredit*d.plain)
	if without > 0 && d.loaded() && e.options.DraftTokens == 0 {
		e.judge(without+took, without+saved)
	}
}

// judge goes on without a draft model that does not gain what it must. took are the seconds of a pass with its guesses, and would
// those of the same tokens without.
func (e *Engine) judge(took, would float64) {
	d := &e.drafter
	d.took, d.would = d.took+took, d.would+would
	if d.judged++; d.judged < judgedPasses {
		return
	}
	if d.would < e.options.DraftNeeds*d.took {
		e.draftFailed(ErrDraftSlow)
		return
	}
	d.took, d.would, d.judged = d.took/2, d.would/2, judgedPasses/2
}
