package nn

import (
	"slices"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Guesser is implemented by Weights that may read experts before their router has selected
// them.
type Guesser interface {
	// Guesses reports whether to predict experts of the stack m, whose block runs next. It also
	// requires that the prediction may read params, parameters of that block, now.
	Guesses(m *meta.Module, params []*meta.Param) bool
	// GuessExperts announces the experts of the stack m that its router will probably select, the
	// most likely first. The slice is valid during the call.
	GuessExperts(m *meta.Module, experts []int32)
}

// guessRows is the maximum number of rows of a pass whose experts are predicted. More rows select
// most experts anyway.
const guessRows = 8

// A guess applies the norm and the router of the next block to the hidden states before the
// experts of this block. Both blocks add little to the hidden states, so the router selects
// nearly the same experts.
type guess struct {
	norm   *norm
	moe    *moe
	params []*meta.Param
}

// guessed returns the predictor of a block's experts. It returns nil if the router's input is not
// the result of a norm.
func (b *block) guessed() *guess {
	m, mixture := b.mlp.body.(*moe)
	if !mixture || m.router == nil || m.table != nil || m.apart() || m.spec.Identity > 0 || b.mlp.pre == nil || b.mlp.pre.each != nil || b.mlp.in != 1 || !b.plain() {
		return nil
	}
	g := &guess{norm: b.mlp.pre, moe: m}
	read := []param{b.mlp.pre.weight, b.mlp.pre.bias, m.router.weight, m.router.bias, m.correctionParam}
	if gate := b.mlp.pre.gate; gate != nil {
		read = append(read, gate.up.weight, gate.up.bias, gate.down.weight, gate.down.bias)
	}
	for _, p := range read {
		if p.Param != nil {
			g.params = append(g.params, p.Param)
		}
	}
	return g
}

// plain reports whether b is two branches of one stream in sequence.
func (b *block) plain() bool {
	return !b.parallel && b.streams == nil && b.altUp == nil && b.experts == nil && b.shortcut == nil
}

// guessFrom predicts the experts of the next block from x, the hidden states before the second
// branch of b.
func (b *block) guessFrom(c *Context, x tensor.Tensor) {
	r := &c.routing
	r.guess = r.guess[:0]
	g := b.next
	if g == nil || c.guesser == nil || c.err != nil || x.Rows() > guessRows || x.Rows() != c.rows || c.recording() || !c.guesser.Guesses(g.moe.stack.Module, g.params) {
		return
	}
	r.guessOf = g.moe.stack.Module
	mark := c.arena.used
	y := c.arena.take(x.Rows(), g.norm.cols())
	g.norm.forward(c, y, x)
	g.moe.choose(c, g.moe.logits(c.collect(), y))
	c.arena.used = mark
	if !c.sync(g.moe.path) {
		return
	}
	for rank := range g.moe.spec.TopK {
		for row := range x.Rows() {
			if e := r.experts[row*g.moe.spec.Chosen()+rank]; !slices.Contains(r.guess, e) {
				r.guess = append(r.guess, e)
			}
		}
	}
}

// tellGuess announces the predicted experts if it was not done yet.
func (c *Context) tellGuess() {
	r := &c.routing
	if len(r.guess) > 0 && c.err == nil {
		c.guesser.GuessExperts(r.guessOf, r.guess)
	}
	r.guess = r.guess[:0]
}

// scratch returns the scratch memory of guessFrom.
func (g *guess) scratch(rows int) int {
	if g == nil {
		return 0
	}
	rows = min(rows, guessRows)
	return floats(rows, g.norm.cols()) + max(g.norm.scratch(rows), floats(rows, g.moe.choices()))
}
