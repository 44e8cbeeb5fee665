package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/heftai/heft/dispatch"
)

// Chain is a draft model of modules for multi-token prediction that follow each other. The first guesses from the model's
// hidden states. Each further one takes the hidden states of the module before it and the tokens behind that one's, and makes the
// next guess. The last one makes all guesses after its own. The modules return hidden states of as many tokens as a pass may have.
func Chain(modules ...Model) Model {
	if len(modules) == 1 {
		return modules[0]
	}
	return &chain{Model: modules[0], modules: modules, width: joins(modules[0])}
}

// chain embeds the first module.
type chain struct {
	Model
	modules []Model
	width   int

	depths []int // of rows of guesses: the module that makes the next one
	out    chained

	// Of the pass of one module:
	jobs   []chainJob
	rows   []Row
	before []float32 // what the jobs take, where the module before has not returned it in one piece
}

// A chainJob is the work of one module for a row of a pass.
type chainJob struct {
	row    int // of the chain's pass
	seq    *chainSequence
	tokens []int32
	before []float32
}

// chained are the results of a pass.
type chained struct {
	values [][]float32
	hidden [][]float32
}

func (o *chained) Row(i int) (int, []float32) { return min(len(o.values[i]), 1), o.values[i] }
func (o *chained) Hidden(i int) []float32     { return o.hidden[i] }

// A chainSequence has a sequence of each module. One has as many tokens of the text as the one before, but its first: what it takes
// the state of is a token further back.
type chainSequence struct {
	parts   []Sequence
	pending [][]float32 // of each module: the last state of the one before it, whose token is not known; nil before there is one
	text    []int       // tokens of the text in each of parts
	guesses []int32     // behind the text
	carried []float32   // the states that the last guess left, one for each guess before it and one
	states  []float32   // what a module has computed in this pass, for the next one
}

var errChain = errors.New("engine: a module for multi-token prediction returned too few hidden states")

// Joins is the width of the hidden states.
func (c *chain) Joins() int { return c.width }

// Ready reports whether the weights of all modules are loaded.
func (c *chain) Ready() bool {
	return !slices.ContainsFunc(c.modules, func(m Model) bool {
		r, ok := m.(interface{ Ready() bool })
		return ok && !r.Ready()
	})
}

// Kernels are the first module's.
func (c *chain) Kernels() dispatch.Kernels { return dispatch.Kernels{Variant: variant(c.Model)} }

// Context is the shortest of the modules'.
func (c *chain) Context() int {
	n := c.Model.Context()
	for _, m := range c.modules {
		n = min(n, m.Context())
	}
	return n
}

// Limits are those of all modules: each returns the states of all tokens of its pass.
func (c *chain) Limits() Limits {
	l := c.Model.Limits()
	for _, m := range c.modules {
		k := m.Limits()
		l.Tokens = min(orAny(l.Tokens), orAny(k.Tokens), orAny(k.States))
		l.Sequences = min(orAny(l.Sequences), orAny(k.Sequences))
		l.LogitRows = min(orAny(l.LogitRows), orAny(k.LogitRows))
	}
	return l
}

// NewSequence makes a sequence whose prefixes are shared in the first module alone.
func (c *chain) NewSequence(prompt int) Sequence {
	s := &chainSequence{pending: make([][]float32, len(c.modules)), text: make([]int, len(c.modules))}
	for i, m := range c.modules {
		part := m.NewSequence(prompt)
		if seal, ok := part.(sealing); ok && i > 0 {
			seal.Seal()
		}
		s.parts = append(s.parts, part)
	}
	return s
}

// Len counts guesses too.
func (s *chainSequence) Len() int { return s.text[0] + len(s.guesses) }

// Reserve takes pages in each module.
func (s *chainSequence) Reserve(n int) error {
	for _, p := range s.parts {
		if err := p.Reserve(n + len(s.guesses) + len(s.parts)); err != nil {
			return err
		}
	}
	return nil
}

func (s *chainSequence) Reuse(tokens []int32) int {
	s.text[0] = s.parts[0].Reuse(tokens)
	return s.text[0]
}

func (s *chainSequence) Salt(salt string) {
	if p, ok := s.parts[0].(salting); ok {
		p.Salt(salt)
	}
}

func (s *chainSequence) Seal() {
	if p, ok := s.parts[0].(sealing); ok {
		p.Seal()
	}
}

func (s *chainSequence) Free() {
	for _, p := range s.parts {
		p.Free()
	}
}

// Truncate forgets guesses. Of the text it forgets all or nothing.
func (s *chainSequence) Truncate(n int) int {
	if n >= s.Len() {
		return s.Len()
	}
	for i, p := range s.parts {
		want := s.text[i]
		if n < s.text[0] {
			want = 0
		}
		if p.Len() > want && p.(rewinder).Truncate(want) != want {
			n = 0
		}
	}
	s.guesses = s.guesses[:0]
	if n < s.text[0] {
		clear(s.text)
		clear(s.pending)
	}
	return s.text[0]
}

// depth is the module that makes the guess behind those of s: the first whose turn it is, or the last that has a state.
func (s *chainSequence) depth() int {
	d := 0
	for d < min(len(s.guesses), len(s.parts)-1) && s.pending[d+1] != nil {
		d++
	}
	return d
}

// Forward computes known tokens in all modules and guesses in one each.
func (c *chain) Forward(ctx context.Context, rows []Row) (Logits, error) {
	c.depths, c.out.values, c.out.hidden = c.depths[:0], c.out.values[:0], c.out.hidden[:0]
	for _, r := range rows {
		s := r.Sequence.(*chainSequence)
		if r.Guessed {
			s.guesses = append(s.guesses, r.Tokens...)
		}
		c.depths, c.out.values, c.out.hidden = append(c.depths, s.depth()), append(c.out.values, nil), append(c.out.hidden, nil)
	}
	for d := range c.modules {
		c.jobs, c.before = c.jobs[:0], c.before[:0]
		for i, r := range rows {
			s := r.Sequence.(*chainSequence)
			j := chainJob{row: i, seq: s}
			switch {
			case !r.Guessed:
				j.tokens, j.before = c.known(s, d, r)
			case c.depths[i] == d:
				j.tokens, j.before = c.guessed(s, d)
			}
			if len(j.tokens) > 0 {
				c.jobs = append(c.jobs, j)
			} else {
				s.states = nil
			}
		}
		if err := c.run(ctx, d, rows); err != nil {
			return nil, err
		}
	}
	return &c.out, nil
}

// known are the tokens of a row of known ones for module d, and the states before them.
func (c *chain) known(s *chainSequence, d int, r Row) ([]int32, []float32) {
	if d == 0 {
		return r.Tokens, r.Before
	}
	width := c.width
	n := len(s.states) / width // that the module before has computed, of the same tokens
	if n == 0 {
		return nil, nil
	}
	tokens, last := r.Tokens[len(r.Tokens)-n:], s.states[(n-1)*width:]
	before := c.join(s.pending[d], s.states[:(n-1)*width])
	s.pending[d] = append(s.pending[d][:0], last...)
	return tokens[n-len(before)/width:], before
}

// guessed are the tokens behind which module d computes the next guess, and the states before them.
func (c *chain) guessed(s *chainSequence, d int) ([]int32, []float32) {
	if n := len(s.guesses); d > 0 && d == n { // its turn: the guesses so far, of which the one before it lacks the last
		return s.guesses, c.join(s.pending[d], s.carried)
	}
	return s.guesses[len(s.guesses)-1:], s.carried[len(s.carried)-c.width:]
}

// join returns a and b in one piece, valid as long as the jobs of a module.
func (c *chain) join(a, b []float32) []float32 {
	from := len(c.before)
	c.before = append(append(c.before, a...), b...) // what was joined before keeps its memory
	return c.before[from:]
}

// run has module d compute the jobs.
func (c *chain) run(ctx context.Context, d int, rows []Row) error {
	if len(c.jobs) == 0 {
		return nil
	}
	c.rows = c.rows[:0]
	for _, j := range c.jobs {
		r := rows[j.row]
		mode := LogitsNone
		if r.Guessed || d == 0 {
			mode = r.Logits
		}
		c.rows = append(c.rows, Row{Sequence: j.seq.parts[d], Tokens: j.tokens, PromptLen: r.PromptLen, Logits: mode, Hidden: HiddenAll, Before: j.before})
	}
	logits, err := c.modules[d].Forward(ctx, c.rows)
	if err != nil {
		return err
	}
	states, _ := logits.(HiddenStates)
	for i, j := range c.jobs {
		if states == nil || len(states.Hidden(i)) != len(j.tokens)*c.width {
			return errChain
		}
		c.took(d, i, j, rows[j.row], logits, states.Hidden(i))
	}
	return nil
}

// took keeps what module d returned for a job.
func (c *chain) took(d, i int, j chainJob, r Row, logits Logits, states []float32) {
	s := j.seq
	s.states = states // valid until the module's next pass, as the results are
	if c.rows[i].Logits != LogitsNone {
		_, c.out.values[j.row] = logits.Row(i)
		c.out.hidden[j.row] = states[len(states)-c.width:]
	}
	switch {
	case !r.Guessed:
		if s.text[d] += len(j.tokens); d == 0 {
			s.carried = s.carried[:0]
		}
	case d == len(s.guesses):
		s.carried = append(s.carried[:0], states...)
	default:
		s.carried = append(s.carried, states...)
	}
}
