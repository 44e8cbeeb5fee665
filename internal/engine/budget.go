package engine

import (
	"errors"
	"math"
	"time"
)

// A budget bounds the time that a draft model may waste. Whether the draft model pays is only
// known by running it, and its guesses may not save that time. The budget starts with the time of
// a few passes. It grows by a small share of the time of all passes and by the time that guesses
// save, and shrinks by the time of the draft model. While it is negative, the draft model does
// not run. The draft model therefore never wastes more than firstCredit passes, the share
// allowance of all time, and the run that overdrew the budget.
type budget struct {
	balance float64       // seconds, at most mostCredit passes
	plain   float64       // seconds of a pass without guesses; 0 if unknown
	spent   time.Duration // by the draft model since the last pass of the model

	// Weighted averages over recent passes, in seconds: with guesses, and for the same tokens
	// without.
	with, without float64
	judged        int // passes until the two are compared
}

// ErrDraftSlow is the reason why an engine drops a draft model whose guesses save less time than
// its memory costs.
var ErrDraftSlow = errors.New("engine: the draft model's guesses save less time than the memory that it takes costs")

// judgedPasses is the number of passes after which the gain of a draft model is compared with
// Options.DraftNeeds.
const judgedPasses = 32

const (
	allowance   = 0.005
	firstCredit = 2
	mostCredit  = 32
	// firstRows is the number of prompt tokens that a draft model computes before the time for
	// that is known.
	firstRows = 32
)

// FixTimes replaces the measured times of passes by the results of took, whose argument is true
// for passes of the draft model. Nothing else that affects guesses, or whether a draft model
// pays, differs between machines and runs. It is for tests, before the first request. The engine
// calls took from its goroutine.
func (e *Engine) FixTimes(took func(draft bool) time.Duration) { e.fixed = took }

// took returns the duration of a pass of the draft model, or of the model, that began at begin.
func (e *Engine) took(begin time.Time, draft bool) time.Duration {
	if e.fixed != nil {
		return e.fixed(draft)
	}
	return time.Since(begin)
}

// affords reports whether the budget allows running the draft model.
func (e *Engine) affords() bool { return e.options.DraftTokens > 0 || e.drafter.balance >= 0 }

// affordsReading reports whether a draft model may compute n prompt tokens for an answer of at
// most left tokens, although it is unknown whether that pays. The budget must cover it, or it
// must be a small part of the answer's time.
func (d *drafter) affordsReading(n, left int) bool {
	seconds := d.perToken.Seconds() * float64(n)
	return seconds <= max(d.balance, allowance*d.plain*min(float64(left), d.length))
}

// rowsAtOnce returns the maximum number of prompt tokens in a pass of the draft model.
func (d *drafter) rowsAtOnce() int {
	if d.perToken.Seconds() == 0 {
		return firstRows
	}
	return math.MaxInt
}

// A guessed counts the guesses that a pass has verified.
type guessed struct {
	choices int // for which the pass should yield a token
	guesses int // verified guesses
	drafted int // of these, the draft model's
	right   int // right guesses among drafted
}

// add adds c, of whose guesses right were right.
func (g *guessed) add(c *choice, right int) {
	if c.chunk-c.taken == 1 || c.decodes {
		g.choices++
	}
	if g.guesses += c.taken; c.drafted {
		g.drafted, g.right = g.drafted+c.taken, g.right+right
	}
}

// settle accounts for the time that the draft model's guesses in a pass have saved, and that they
// took.
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
		e.checkGain(without+took, without+saved)
	}
}

// checkGain stops using a draft model that gains too little. with are the seconds of a pass with
// its guesses, and without those of the same tokens without guesses.
func (e *Engine) checkGain(with, without float64) {
	d := &e.drafter
	d.with, d.without = d.with+with, d.without+without
	if d.judged++; d.judged < judgedPasses {
		return
	}
	if d.without < e.options.DraftNeeds*d.with {
		e.draftFailed(ErrDraftSlow)
		return
	}
	d.with, d.without, d.judged = d.with/2, d.without/2, judgedPasses/2
}
