package engine

import (
	"slices"
	"time"

	"github.com/heftai/heft/internal/draft"
)

// MaxDraftTokens is the maximum number of guessed tokens that a pass verifies for a choice.
const MaxDraftTokens = draft.MaxTokens

// A guesser is what a choice keeps of guesses: tokens that may come next, which a pass verifies.
type guesser struct {
	lookup    *draft.Lookup // of the choice's tokens; nil until first used
	predict   *draft.Lookup // of the request's prediction; nil until first used
	second    Sequence      // in the draft model; nil until first used; its tokens are always those of the choice
	odds      draft.Odds
	guess     []int32 // what may follow the known tokens
	classes   []draft.Class
	chances   []float64 // probability that each of guess is right
	next      float64   // probability that guess and one more are right
	reach     int       // maximum length of guess
	drafted   bool      // guess comes from the draft model
	predicted bool      // guess comes from the prediction
	taken     int       // number of guesses that this pass verifies
	pass      []int32   // the tokens of a pass that verifies guesses
	following
}

// drafts holds the engine's state of guesses.
type drafts struct {
	costs    draft.Costs
	odds     draft.Odds // of all choices
	offers   []draft.Offer
	offering []*choice // one for each offer
	unused   []*draft.Lookup
	lookups  int // created so far
}

// A rewinder is a Sequence that can forget its last tokens.
type rewinder interface {
	// Truncate removes the tokens from n on. It returns the number of tokens left, which may be
	// less than n.
	Truncate(n int) int
}

// mayGuess reports whether guesses may follow the tokens of c in the pass: the pass computes all
// of them, all are generated, and none is a forced token whose log-probability is requested.
func (e *Engine) mayGuess(c *choice) bool {
	if c.seq == nil || c.chunk == 0 || c.chunk != c.pending() || c.seq.Len() < c.prompt || c.unscored > 0 {
		return false
	}
	_, ok := c.seq.(rewinder)
	return ok && !(c.constraint != nil && c.stream.request.LogProbs) // see force
}

// guess adds guesses to the chunks of choices whose pass has only such tokens. base is the number
// of tokens of the pass; there is room for logitRows more rows of logits. It returns the number
// of guesses.
func (e *Engine) guess(base, logitRows int) (sum int) {
	d := &e.drafts
	d.offers, d.offering = d.offers[:0], d.offering[:0]
	most := min(e.options.MaxBatchTokens, orAny(e.model.Limits().Tokens)) - base
	if len(e.prompts) > 0 {
		most /= 2 // prompts get the rest
	}
	for _, c := range e.running {
		if !e.mayGuess(c) || logitRows < c.chunk {
			continue
		}
		logitRows -= c.chunk - 1 // all rows of a pass that verifies guesses have logits
		e.look(c)
		d.offering = append(d.offering, c)
	}
	if most = min(most, logitRows); most <= 0 || len(d.offering) == 0 {
		return 0
	}
	e.ask(base)
	for _, c := range d.offering {
		d.offers = append(d.offers, draft.Offer{Tokens: c.guess, Chances: c.chances})
	}
	if fixed := e.options.DraftTokens; fixed > 0 {
		for i := range d.offers {
			o := &d.offers[i]
			o.Take = min(len(o.Tokens), fixed, most)
			most -= o.Take
		}
	} else {
		draft.Decide(&d.costs, base, len(d.offering), most, d.offers)
	}
	for i, c := range d.offering {
		if n := d.offers[i].Take; n > 0 && c.seq.Reserve(c.chunk+n) == nil {
			c.chunk, c.taken, c.decodes = c.chunk+n, n, true
			sum += n
		}
	}
	return sum
}

// look makes guesses for c from its own tokens.
func (e *Engine) look(c *choice) {
	most := min(draft.MaxTokens, c.max-len(c.tokens)-1, e.page)
	if s, ok := c.seq.(interface{ Together(n int) int }); ok && most > 0 {
		most = s.Together(c.chunk+most) - c.chunk
	}
	if c.reach = most; most <= 0 {
		return
	}
	if c.lookup == nil {
		if c.lookup = e.newLookup(); c.lookup == nil {
			return
		}
		c.guess, c.pass = slices.Grow(c.guess, draft.MaxTokens), slices.Grow(c.pass, draft.MaxTokens+maxForced+1)
		c.chances, c.classes = slices.Grow(c.chances, draft.MaxTokens), slices.Grow(c.classes, draft.MaxTokens)
	}
	source := c.tokens
	at, match := c.lookup.Find(source, c.tokens)
	if p, n := e.findPredicted(c); n > 0 && n >= match {
		source, at, match, c.predicted = c.stream.request.Prediction, p, n, true
	}
	if match == 0 {
		return
	}
	c.guess = draft.Follow(c.guess, source, at, most, !c.predicted)
	lookup := c.lookup
	if c.predicted {
		lookup = c.predict
	}
	for i := range c.guess {
		e.classify(c, lookup.Class(at, match, i, !c.predicted))
	}
}

// findPredicted returns the position at which the prediction of c's request continues its text, and
// how many tokens match there, or 0.
func (e *Engine) findPredicted(c *choice) (at, match int) {
	prediction := c.stream.request.Prediction
	if len(prediction) == 0 {
		return 0, 0
	}
	if c.predict == nil {
		if c.predict = e.newLookup(); c.predict == nil {
			return 0, 0
		}
		c.predict.Begin(c.prompt)
	}
	return c.predict.Find(prediction, c.tokens)
}

// classify records the class of c's next guess, and returns its probability.
func (e *Engine) classify(c *choice, k draft.Class) float64 {
	chance := c.odds.Of(k, &e.drafts.odds)
	c.classes, c.chances = append(c.classes, k), append(c.chances, chance)
	return chance
}

// noGuess drops the guesses of a pass.
func (c *choice) noGuess() {
	c.guess, c.classes, c.chances, c.taken, c.drafted = c.guess[:0], c.classes[:0], c.chances[:0], 0, false
	c.predicted = false
}

// maxLookups bounds the memory for guesses to 8 MiB. Further choices make no guesses from texts.
const maxLookups = 64

// newLookup returns an empty lookup, or nil if there are maxLookups already.
func (e *Engine) newLookup() *draft.Lookup {
	d := &e.drafts
	n := len(d.unused)
	if n == 0 {
		if d.lookups == maxLookups {
			return nil
		}
		d.lookups++
		return &draft.Lookup{}
	}
	l := d.unused[n-1]
	d.unused = d.unused[:n-1]
	return l
}

// forget drops what c keeps for guessing, when it leaves its slot.
func (e *Engine) forget(c *choice) {
	c.noGuess()
	c.leaveDrafter()
	c.following = following{states: c.states[:0], carried: c.carried[:0]}
	for _, l := range [...]**draft.Lookup{&c.lookup, &c.predict} {
		if *l != nil {
			(*l).Reset()
			e.drafts.unused = append(e.drafts.unused, *l)
			*l = nil
		}
	}
}

// verified returns the tokens of a pass that verifies guesses, from at on.
func (c *choice) verified(at int) []int32 {
	c.pass = append(append(c.pass[:0], c.tokens[at:]...), c.guess[:c.taken]...)
	return c.pass
}

// note records whether the guess at index i, if there is one, equals the chosen token.
func (e *Engine) note(c *choice, i int, token int32) {
	if i < len(c.guess) {
		right := c.guess[i] == token
		c.odds.Note(c.classes[i], right)
		e.drafts.odds.Note(c.classes[i], right)
		if c.drafted && i == 0 {
			e.drafter.noteFirst(c, right)
		}
	}
}

// verify chooses tokens of c from the logits after its known tokens and its guesses, as long as
// the guesses equal the chosen tokens. It drops the other guesses.
func (e *Engine) verify(c *choice, values []float32, now time.Time) error {
	first, taken, right := len(c.tokens), c.taken, 0
	values = values[len(values)-(taken+1)*e.vocab:]
	e.totals.drafts++
	e.totals.drafted += int64(taken)
	if c.predicted {
		c.stream.rejected.Add(int64(taken))
	}
	for known := 0; known == right; {
		if err := e.choose(c, values[right*e.vocab:(right+1)*e.vocab], now); err != nil || c.ended {
			return err
		}
		e.note(c, right, c.tokens[first+known])
		for known = len(c.tokens) - first; right < min(taken, known) && c.tokens[first+right] == c.guess[right]; {
			right++
			e.totals.accepted++
			if c.predicted {
				c.stream.accepted.Add(1)
				c.stream.rejected.Add(-1)
			}
		}
	}
	c.seq.(rewinder).Truncate(first + right)
	return nil
}
