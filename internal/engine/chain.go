package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/heftai/heft/dispatch"
)

// Chain is a draft model of several modules for multi-token prediction. The first module guesses
// from the model's hidden states. Each further module makes the next guess from the hidden states
// of the preceding module and the following tokens. The last module also makes all further
// guesses. The modules must return hidden states for as many tokens as a pass may have.
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

	depths []int // by row of guesses: the module that makes the next one
	out    chained

	// For the pass of one module:
	jobs   []chainJob
	rows   []Row
	before []float32 // inputs of the jobs that the preceding module has not returned contiguously
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

// A chainSequence has a sequence of each module. Each module has all tokens of the text that the
// preceding module has, except its first: it pairs a state with a token one position later.
type chainSequence struct {
	parts   []Sequence
	pending [][]float32 // by module: the last state of the preceding module, whose next token is unknown; nil if there is none
	text    []int       // text tokens in each of parts
	guesses []int32     // tokens after the text
	carried []float32   // states of the last guess: one for each guess before it, and one more
	states  []float32   // result of a module in this pass, for the next one
}

var errChain = errors.New("engine: a module for multi-token prediction returned too few hidden states")

// Joins returns the width of the hidden states.
func (c *chain) Joins() int { return c.width }

// Ready reports whether the weights of all modules are loaded.
func (c *chain) Ready() bool {
	return !slices.ContainsFunc(c.modules, func(m Model) bool {
		r, ok := m.(interface{ Ready() bool })
		return ok && !r.Ready()
	})
}

// Kernels returns the first module's.
func (c *chain) Kernels() dispatch.Kernels { return kernelsOf(c.Model) }

// Context returns the shortest context of the modules.
func (c *chain) Context() int {
	n := c.Model.Context()
	for _, m := range c.modules {
		n = min(n, m.Context())
	}
	return n
}

// Limits returns the minimum over all modules. Each module returns the states of all tokens of
// its pass.
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

// NewSequence returns a sequence that shares prefixes only in the first module.
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

// Len includes guesses.
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

// Truncate removes guesses. It removes either all or none of the text.
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

// depth returns the module that makes the next guess for s: the first one whose turn it is, or
// the last one that has a state.
func (s *chainSequence) depth() int {
	d := 0
	for d < min(len(s.guesses), len(s.parts)-1) && s.pending[d+1] != nil {
		d++
	}
	return d
}

// Forward computes known tokens in all modules, and guesses in one module each.
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

// known returns the tokens for module d of a row of known tokens, and the preceding states.
func (c *chain) known(s *chainSequence, d int, r Row) ([]int32, []float32) {
	if d == 0 {
		return r.Tokens, r.Before
	}
	width := c.width
	n := len(s.states) / width // computed by the preceding module for the same tokens
	if n == 0 {
		return nil, nil
	}
	tokens, last := r.Tokens[len(r.Tokens)-n:], s.states[(n-1)*width:]
	before := c.join(s.pending[d], s.states[:(n-1)*width])
	s.pending[d] = append(s.pending[d][:0], last...)
	return tokens[n-len(before)/width:], before
}

// guessed returns the tokens after which module d computes the next guess, and the preceding
// states.
func (c *chain) guessed(s *chainSequence, d int) ([]int32, []float32) {
	if n := len(s.guesses); d > 0 && d == n { // its turn: the guesses so far; the preceding module lacks the last one
		return s.guesses, c.join(s.pending[d], s.carried)
	}
	return s.guesses[len(s.guesses)-1:], s.carried[len(s.carried)-c.width:]
}

// join returns a and b as one slice, valid for the jobs of one module.
func (c *chain) join(a, b []float32) []float32 {
	from := len(c.before)
	c.before = append(append(c.before, a...), b...) // earlier results keep their memory
	return c.before[from:]
}

// run computes the jobs with module d.
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

// took stores the results of module d for a job.
func (c *chain) took(d, i int, j chainJob, r Row, logits Logits, states []float32) {
	s := j.seq
	s.states = states // valid until the module's next pass, like the results
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
