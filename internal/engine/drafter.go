package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/heftai/heft/internal/draft"
	"github.com/heftai/heft/internal/sample"
)

// A drafter is a second model that guesses tokens for speculative decoding.
type drafter struct {
	model   Model // nil if there is none, or if it has failed
	vocab   int
	width   int // width of the model's hidden states that it takes, 0 if none; see joiner
	sampler *sample.Sampler
	passes  draft.Recent
	ready   bool       // its weights are loaded
	idle    int        // passes since it last ran
	pause   int        // passes after which it runs again
	right   [2]float64 // average share of right first guesses; [1] is for a model that joins and has most of the text
	told    [2]int     // number of first guesses in right, up to a bound
	top     []sample.LogProb

	budget

	asked  []*choice // choices whose next tokens are being guessed
	nexts  []float64 // probability that the next guess of each is right
	inPass []*choice // choice of each row
	rows   []Row
	reader
}

const (
	// firstRight is the initial share of right first guesses, with the weight of firstWeight
	// guesses. firstGuesses is the effective number of guesses in the average later.
	firstRight                = 0.7
	firstWeight, firstGuesses = 4, 32
	// promptShare bounds the tokens that a draft model computes before its first guess, as a
	// multiple of the choice's remaining tokens.
	promptShare = 32
	// shortPass is the maximum number of tokens per row in a pass whose duration is typical of
	// guessing.
	shortPass = 16
	// again is the number of passes after which a draft model that was too slow is tried again.
	// It doubles up to mostAgain while the model stays too slow.
	again, mostAgain = 64, 1024
)

func newDrafter(m Model) drafter {
	if m == nil {
		return drafter{}
	}
	d := drafter{model: m, vocab: m.Vocab(), width: joins(m), sampler: sample.New(m.Vocab(), kernelsOf(m).Variant), right: [2]float64{firstRight}, pause: again}
	if d.length = firstLength; d.width > 0 {
		d.right = [2]float64{firstUnread, firstRead}
	}
	return d
}

// loaded reports whether the draft model's weights are loaded.
func (d *drafter) loaded() bool {
	if !d.ready {
		m, ok := d.model.(interface{ Ready() bool })
		d.ready = !ok || m.Ready()
	}
	return d.ready
}

func (d *drafter) noteFirst(c *choice, right bool) {
	v := 0.0
	if right {
		v = 1
	}
	i := d.informed(c)
	d.told[i] = min(d.told[i]+1, firstGuesses-firstWeight)
	d.right[i] += (v - d.right[i]) / float64(firstWeight+d.told[i])
}

// rightOf returns the probability that the first guess for c is right.
func (d *drafter) rightOf(c *choice) float64 { return d.right[d.informed(c)] }

// ask runs the draft model for choices for which its guesses are more likely to be right than the
// ones they have, if that is worth its time. base is the number of tokens of the pass without
// guesses.
func (e *Engine) ask(base int) {
	d := &e.drafter
	if d.model == nil || !d.loaded() || !e.affords() {
		return
	}
	if d.idle++; d.idle > d.pause {
		d.idle, d.passes = 0, draft.Recent{} // measured anew
		d.pause = min(2*d.pause, mostAgain)
	}
	d.asked = d.asked[:0]
	for _, c := range e.drafts.offering {
		if len(c.guess) == 0 || c.chances[0] < d.rightOf(c) {
			d.asked = append(d.asked, c)
		}
	}
	e.keepWorthy(base, func(c *choice) (int, float64) { return 0, d.rightOf(c) })
	d.asked = slices.DeleteFunc(d.asked, func(c *choice) bool { return !e.joins(c, base) })
	for _, c := range d.asked {
		c.noGuess()
		c.drafted = true
	}
	if len(d.asked) > 0 && d.passes.Seconds() > 0 { // its speed is known, and it pays
		d.pause = again
	}
	for len(d.asked) > 0 {
		d.idle = 0
		if err := e.draftPass(); err != nil {
			e.draftFailed(fmt.Errorf("engine: draft model: %w", err))
			break
		}
		d.asked = slices.DeleteFunc(d.asked, func(c *choice) bool {
			return c.second == nil || d.width == 0 && len(c.guess) == 0 && !e.worthCatchingUp(c, len(c.tokens)-c.second.Len(), base)
		})
		e.keepWorthy(base, func(c *choice) (int, float64) { return len(c.guess), c.chance() * d.rightOf(c) })
	}
	for _, c := range e.drafts.offering {
		if c.drafted {
			d.rewind(c)
		}
	}
}

// keepWorthy removes choices from d.asked for which one more guess is not worth its share of a
// pass of the draft model, which makes one guess for each. next returns how many guesses a choice
// has, and the probability that they and the next one are all right.
func (e *Engine) keepWorthy(base int, next func(c *choice) (int, float64)) {
	d := &e.drafter
	most := draft.MaxTokens
	if fixed := e.options.DraftTokens; fixed > 0 {
		most = fixed
	}
	d.asked = slices.DeleteFunc(d.asked, func(c *choice) bool {
		n, p := next(c)
		c.next = p
		return n >= min(most, c.reach)
	})
	if e.options.DraftTokens > 0 {
		return
	}
	slices.SortStableFunc(d.asked, func(a, b *choice) int { return cmp.Compare(b.next, a.next) })
	d.nexts = d.nexts[:0]
	for _, c := range d.asked {
		d.nexts = append(d.nexts, c.next)
	}
	d.asked = d.asked[:draft.Worth(&e.drafts.costs, base, len(e.drafts.offering), d.nexts, d.passes.Seconds())]
}

// chance returns the probability that all guesses are right.
func (c *choice) chance() float64 {
	p := 1.0
	for _, q := range c.chances {
		p *= q
	}
	return p
}

// joins creates a sequence of the draft model for c. It returns false if the model cannot have
// its tokens, or if computing the missing tokens is not worth the time for so few remaining
// tokens. base is the number of tokens of the pass without guesses.
func (e *Engine) joins(c *choice, base int) bool {
	d := &e.drafter
	if len(c.tokens)+c.reach > d.model.Context() || d.width > 0 && !d.stated(c) {
		return false
	}
	if c.second != nil {
		return d.width > 0 || e.worthCatchingUp(c, len(c.tokens)-c.second.Len(), base)
	}
	if d.width > 0 {
		return d.begin(c, c.end-len(c.states)/d.width)
	}
	if len(c.tokens) > promptShare*(c.max-len(c.tokens)) {
		return false
	}
	if c.refused && !e.worthCatchingUp(c, len(c.tokens), base) {
		return false
	}
	seq, ok := d.sequence(c, c.stream.request.Salt)
	if !ok {
		return false
	}
	known := seq.Reuse(c.tokens[:c.prompt])
	if !e.worthCatchingUp(c, len(c.tokens)-known, base) {
		seq.Free()
		c.refused = true
		return false
	}
	c.second = seq
	return true
}

// worthCatchingUp reports whether the draft model should compute n tokens of c before it guesses:
// whether first guesses for the probable remaining tokens of c save more time.
func (e *Engine) worthCatchingUp(c *choice, n, base int) bool {
	d := &e.drafter
	perToken := d.perToken.Seconds()
	if n <= shortPass || perToken == 0 || e.options.DraftTokens > 0 {
		return true
	}
	if d.told[d.informed(c)] < firstWeight && !d.affordsReading(n, c.max-len(c.tokens)) {
		return false
	}
	yield := len(e.drafts.offering) // choices that share passes of the draft model
	saved, known := draft.Saves(&e.drafts.costs, base, yield, d.rightOf(c), d.passes.Seconds()/float64(yield))
	return !known || saved*min(float64(c.max-len(c.tokens)), d.length) > perToken*float64(n)
}

// sequence creates a sequence of the draft model for c. It returns false if the model's sequences
// cannot be rewound.
func (d *drafter) sequence(c *choice, salt string) (Sequence, bool) {
	seq := d.model.NewSequence(c.prompt)
	if _, ok := seq.(rewinder); !ok {
		seq.Free()
		return nil, false
	}
	if s, ok := seq.(salting); ok && salt != "" {
		s.Salt(salt)
	}
	return seq, true
}

// draftPass runs one pass of the draft model, for as many of the asked choices as fit. Each
// choice that has all its tokens in it then has one more guess.
func (e *Engine) draftPass() error {
	d := &e.drafter
	short := d.plan()
	if len(d.rows) == 0 {
		return nil
	}
	begin := time.Now()
	logits, err := d.model.Forward(e.ctx, d.rows)
	if err != nil {
		return err
	}
	took := e.took(begin, true)
	d.spent += took
	if short {
		d.passes.Add(took)
	} else if n := tokensOf(d.rows); d.width == 0 && n > shortPass {
		d.perToken.Add(took / time.Duration(n))
	}
	for i, c := range d.inPass {
		if d.rows[i].Logits == LogitsNone {
			continue
		}
		if err := d.carry(c, i, logits); err != nil {
			return err
		}
		_, values := logits.Row(i)
		_, d.top, err = d.sampler.LogProbs(d.top[:0], values, 0, 1)
		if err != nil {
			return fmt.Errorf("logits: %w", err)
		}
		id := d.top[0].ID
		if int(id) >= e.vocab {
			c.reach = len(c.guess) // the model has no such token
			if len(c.guess) == 0 {
				c.leaveDrafter()
			}
			continue
		}
		c.guess = append(c.guess, id)
		e.classify(c, draft.Confident(math.Exp(float64(d.top[0].LogProb))))
	}
	return nil
}

// tokensOf returns the number of tokens in rows.
func tokensOf(rows []Row) int {
	n := 0
	for i := range rows {
		n += len(rows[i].Tokens)
	}
	return n
}

// plan sets the rows of a pass. Choices whose tokens the draft model cannot have leave it. It
// reports whether all rows are short.
func (d *drafter) plan() bool {
	d.rows, d.inPass = d.rows[:0], d.inPass[:0]
	limits, short := d.model.Limits(), true
	budget := orAny(limits.Tokens)
	for _, c := range d.asked {
		if len(d.rows) == min(orAny(limits.Sequences), orAny(limits.LogitRows)) || budget == 0 {
			break
		}
		r := d.row(c, budget)
		n := len(r.Tokens)
		if n > budget && len(d.rows) > 0 {
			continue // in another pass
		}
		if n > budget || int(slices.Max(r.Tokens)) >= d.vocab || c.second.Reserve(n) != nil {
			c.leaveDrafter()
			continue
		}
		d.rows, d.inPass = append(d.rows, r), append(d.inPass, c)
		budget -= n
		short = short && n <= shortPass
	}
	return short
}

// row returns the part of c in a pass that has room for budget tokens. For a draft model that
// joins it may be longer.
func (d *drafter) row(c *choice, budget int) Row {
	if d.width > 0 {
		return d.joined(c)
	}
	at, all := c.second.Len(), len(c.tokens)+len(c.guess)
	n := min(all-at, budget, d.rowsAtOnce())
	r := Row{Sequence: c.second, Tokens: c.draftTokens(at, n), PromptLen: c.prompt}
	if at+n == all {
		r.Logits = LogitsLast
	}
	return r
}

// draftTokens returns n of c's tokens and guesses, from at on.
func (c *choice) draftTokens(at, n int) []int32 {
	known := len(c.tokens)
	switch {
	case at+n <= known:
		return c.tokens[at : at+n]
	case at >= known:
		return c.guess[at-known:][:n]
	}
	c.pass = append(append(c.pass[:0], c.tokens[at:]...), c.guess...)
	return c.pass[:n]
}

// leaveDrafter frees c's sequence of the draft model.
func (c *choice) leaveDrafter() {
	if c.second != nil {
		c.second.Free()
		c.second = nil
	}
}

// draftFailed drops the draft model.
func (e *Engine) draftFailed(err error) {
	if e.ctx.Err() != nil {
		return
	}
	for _, list := range [][]*choice{e.running, e.waiting} {
		for _, c := range list {
			c.leaveDrafter()
		}
	}
	e.drafter.model, e.drafter.width = nil, 0
	if f := e.options.DraftFailed; f != nil {
		f(err)
	}
}
