package grammar

import (
	"github.com/heftai/heft/internal/grammar/dfa"
)

// A Terminal is a regular language that a grammar reads without its stack. Grammars of one
// [Library] may share it.
type Terminal struct {
	lex *lexer
	// With counts, a state of the terminal is a state of the automaton and the number of characters
	// of a JSON string that were read.
	counts   *counts
	min, max int64 // characters; max < 0: no maximum
	// With except, a state of the terminal is a state of the automaton and a node of except.
	except *texts
	// With lang, lex is nil, and a state of the terminal is a *langState in a head.
	lang *language
}

// dead is the state in which no text matches.
const dead int64 = -1

func (t *Terminal) start() int64 {
	t.lex.ready()
	q := int64(t.lex.d.Start())
	if t.except != nil {
		q += int64(t.lex.d.States())
	}
	return q
}

// step returns the state after a byte, or dead.
func (t *Terminal) step(q int64, b byte) int64 {
	d := t.lex.d
	if t.except != nil {
		return t.stepExcept(q, b)
	}
	if t.counts == nil {
		return int64(d.Step(int32(q), b))
	}
	n := int64(d.States())
	s, count := int32(q%n), q/n
	to := d.Step(s, b)
	if to == dfa.Dead {
		return dead
	}
	count += t.counts.read(s, to)
	if t.max >= 0 && count+int64(t.counts.least[to]) > t.max || t.counts.final[to] && count < t.min {
		return dead
	}
	if t.max < 0 {
		count = min(count, t.min)
	}
	return int64(to) + n*count
}

func (t *Terminal) state(q int64) int32 {
	if t.counts == nil && t.except == nil {
		return int32(q)
	}
	return int32(q % int64(t.lex.d.States()))
}

func (t *Terminal) accepts(q int64) bool {
	if t.counts != nil && t.counts.of != wholeString && q/int64(t.lex.d.States()) < t.min {
		return false
	}
	return t.lex.d.Accepts(t.state(q))
}

func (t *Terminal) continues(q int64) bool {
	if t.counts != nil && t.counts.of != wholeString && t.max >= 0 && q/int64(t.lex.d.States()) >= t.max && t.counts.boundary[t.state(q)] {
		return false
	}
	return t.lex.d.Continues(t.state(q))
}

// counting is the kind of text whose characters are counted.
type counting uint8

const (
	wholeString counting = iota // a JSON string with its quotes
	stringPart                  // a part of a JSON string, without quotes
	plainText                   // a text without quotes and escapes
)

// counts says which states of the automaton of a text are between two characters, and how many
// characters the shortest rest of the text has.
type counts struct {
	of       counting
	start    int32 // before the quote; -1 if there is none
	boundary []bool
	final    []bool
	least    []int32
	grows    bool // every prefix of a string can be continued to any length from its minimum on
}

// read returns the number of characters that the step from s to another state completes.
func (c *counts) read(s, to int32) int64 {
	if c.boundary[to] && s != c.start {
		return 1
	}
	return 0
}

// phase is the position of a state within a character of a JSON string.
type phase uint8

const (
	atStart phase = iota
	atBoundary
	atEnd
	atEscape
	atHex // before four hex digits
	atHex2
	atHex3
	atHex4
	atHighHex2 // after the digit d
	atHighHex3 // a high surrogate
	atHighHex4
	atLow // a low surrogate must follow
	atLowEscape
	atLowHex
	atCont1
	atCont2
	atCont3
)

// after returns the phase after a byte that the automaton accepts.
func (p phase) after(b byte) phase {
	switch p {
	case atStart:
		return atBoundary
	case atBoundary:
		switch {
		case b == '"':
			return atEnd
		case b == '\\':
			return atEscape
		case b >= 0xF0:
			return atCont3
		case b >= 0xE0:
			return atCont2
		case b >= 0xC0:
			return atCont1
		}
		return atBoundary
	case atEscape:
		if b == 'u' {
			return atHex
		}
		return atBoundary
	case atHex:
		if b|0x20 == 'd' {
			return atHighHex2
		}
		return atHex2
	case atHighHex2:
		if c := b | 0x20; c == '8' || c == '9' || c == 'a' || c == 'b' {
			return atHighHex3
		}
		return atHex3
	}
	return follows[p]
}

// follows has the next phases that do not depend on the byte.
var follows = [...]phase{
	atEnd: atEnd, atHex2: atHex3, atHex3: atHex4, atHex4: atBoundary, atHighHex3: atHighHex4, atHighHex4: atLow,
	atLow: atLowEscape, atLowEscape: atLowHex, atLowHex: atHex2, atCont3: atCont2, atCont2: atCont1, atCont1: atBoundary,
}

// afterText returns the phase after a byte of a plain text.
func (p phase) afterText(b byte) phase {
	switch {
	case p != atBoundary:
		return follows[p]
	case b >= 0xF0:
		return atCont3
	case b >= 0xE0:
		return atCont2
	case b >= 0xC0:
		return atCont1
	}
	return atBoundary
}

// newCounts finds the characters of d. It returns nil if a state does not determine the position
// within a character.
func newCounts(d *dfa.DFA, of counting) *counts {
	n := d.States()
	phases := make([]phase, n)
	seen := make([]bool, n)
	from := make([][]int32, n)
	work := []int32{d.Start()}
	if d.IsEmpty() {
		return nil
	}
	seen[d.Start()] = true
	after := phase.after
	if of != wholeString {
		phases[d.Start()] = atBoundary
	}
	if of == plainText {
		after = phase.afterText
	}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		for b := range 256 {
			to := d.Step(s, byte(b))
			if to == dfa.Dead {
				continue
			}
			p := after(phases[s], byte(b))
			if seen[to] && phases[to] != p {
				return nil
			}
			if k := len(from[to]); k == 0 || from[to][k-1] != s {
				from[to] = append(from[to], s)
			}
			if !seen[to] {
				seen[to], phases[to] = true, p
				work = append(work, to)
			}
		}
	}
	c := &counts{of: of, start: d.Start(), boundary: make([]bool, n), final: make([]bool, n), least: make([]int32, n)}
	if of != wholeString {
		c.start = -1
	}
	for s, p := range phases {
		c.boundary[s], c.final[s] = p == atBoundary, p == atEnd
	}
	c.measure(from, d)
	c.grows = c.findGrowth(from)
	return c
}

// measure fills least. A step costs a character if it completes one.
func (c *counts) measure(from [][]int32, d *dfa.DFA) {
	const far = 1 << 30
	var near, next []int32 // at this distance, and at the next one
	for s := range c.least {
		c.least[s] = far
		if c.final[s] || c.of != wholeString && d.Accepts(int32(s)) {
			c.least[s] = 0
			near = append(near, int32(s))
		}
	}
	for d := int32(0); len(near) > 0; d++ {
		for len(near) > 0 {
			s := near[len(near)-1]
			near = near[:len(near)-1]
			if c.least[s] < d {
				continue
			}
			for _, p := range from[s] {
				cost := d + int32(c.read(p, s))
				if cost >= c.least[p] {
					continue
				}
				c.least[p] = cost
				if cost == d {
					near = append(near, p)
				} else {
					next = append(next, p)
				}
			}
		}
		near, next = next, near
	}
}

// findGrowth reports whether all states grow, except those after the end of a string. A state grows
// if it has a step to a state that grows and whose shortest rest is at most one character longer.
// Such steps lead to rests of all lengths.
func (c *counts) findGrowth(from [][]int32) bool {
	near := func(s, to int32) bool { return int32(c.read(s, to))+c.least[to] <= c.least[s]+1 }
	steps := make([]int32, len(from)) // to states that may grow
	for to := range from {
		for _, s := range from[to] {
			if near(s, int32(to)) {
				steps[s]++
			}
		}
	}
	var ends []int32
	for s, n := range steps {
		if n == 0 {
			ends = append(ends, int32(s))
		}
	}
	for len(ends) > 0 {
		to := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		if !c.final[to] {
			return false
		}
		for _, s := range from[to] {
			if !near(s, to) {
				continue
			}
			if steps[s]--; steps[s] == 0 {
				ends = append(ends, s)
			}
		}
	}
	return true
}
