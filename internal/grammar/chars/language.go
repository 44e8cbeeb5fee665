package chars

import (
	"math/bits"
	"slices"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// A Language is a set of strings. It does not change and is safe for concurrent use.
type Language struct {
	a       *auto
	lengths *lengths
	spell   *speller
}

// A Set describes a language: strings of Min to Max characters that all parts of With read and no
// part of Without. Max is negative without a maximum.
type Set struct {
	With, Without []*Part
	Min, Max      int
}

// New returns the strings of s in the spelling sp. It returns [ErrTooLarge] if they exceed the
// budget or the limits of the package.
func New(s *Set, sp *Spelling, budget *dfa.Budget) (*Language, error) {
	anything, err := anyText(budget)
	if err != nil {
		return nil, err
	}
	with := append([]*Part{anything}, s.With...)
	var sets [][]dfa.Range
	for _, p := range append(slices.Clone(with), s.Without...) {
		sets = append(sets, p.sets...)
	}
	classes, of, err := partition(sets, budget)
	if err != nil {
		return nil, err
	}
	var whole *auto
	for i, p := range append(with, s.Without...) {
		a := p.auto(of[:len(p.sets)])
		of = of[len(p.sets):]
		if i >= len(with) {
			if a, err = a.complement(len(classes), budget); err != nil {
				return nil, err
			}
		}
		if whole == nil {
			whole = a
			continue
		}
		if whole, err = product(whole, a, budget); err != nil {
			return nil, err
		}
	}
	l := &Language{a: whole}
	if l.lengths, err = whole.newLengths(s.Min, s.Max, budget); err != nil {
		return nil, err
	}
	l.spell, err = newSpeller(classes, sp, budget)
	return l, err
}

// anyText is the part of all texts.
func anyText(budget *dfa.Budget) (*Part, error) {
	b := NewBuilder(budget)
	any := []dfa.Range{{Lo: 0, Hi: dfa.MaxRune}}
	at, err := b.Repeat(0, dfa.Unbounded, func(next Node) (Node, error) { return b.Class(any, next) }, End)
	if err != nil {
		return nil, err
	}
	return b.Part(at)
}

// Bytes returns the approximate memory of l.
func (l *Language) Bytes() int {
	return l.lengths.bytes() + 40*l.a.edges + 32*len(l.a.states) + l.spell.d.Bytes() + 34*len(l.spell.class)
}

// IsEmpty reports whether l has no strings.
func (l *Language) IsEmpty() bool { return l.Start() == nil }

// A State is a position in a text. States do not change.
type State struct {
	at    []int32 // states of the automaton, in order
	byte  int32   // state of the speller
	chars int     // that were read, as far as they matter
	next  classSet
}

// Start returns the state before a text, or nil if l is empty.
func (l *Language) Start() *State {
	return l.state([]int32{0}, 0)
}

// state returns the state after some characters. It returns nil if no text of an allowed length
// follows. It changes at.
func (l *Language) state(at []int32, chars int) *State {
	alive := l.lengths.alive(chars)
	at = slices.DeleteFunc(at, func(s int32) bool { return alive[s/64]>>(s%64)&1 == 0 })
	if len(at) == 0 {
		return nil
	}
	s := &State{at: at, byte: l.spell.d.Start(), chars: chars}
	if l.lengths.max >= 0 && chars == l.lengths.max {
		return s
	}
	after := l.lengths.alive(l.lengths.after(chars))
	for _, from := range at {
		for i := range l.a.states[from].edges {
			if e := &l.a.states[from].edges[i]; after[e.to/64]>>(e.to%64)&1 != 0 {
				s.next.or(&e.classes)
			}
		}
	}
	return s
}

// Step returns the state after a byte, or nil if no text continues with it.
func (l *Language) Step(s *State, b byte) *State {
	to, class := l.spell.step(s.byte, b)
	if to == dfa.Dead {
		return nil
	}
	if class >= 0 {
		return l.read(s, class)
	}
	if reach := s.next.and(&l.spell.reach[to]); reach.empty() {
		return nil
	}
	return &State{at: s.at, byte: to, chars: s.chars, next: s.next}
}

// read returns the state after a character of a class.
func (l *Language) read(s *State, class int) *State {
	if !s.next.has(class) {
		return nil
	}
	return l.state(l.a.read(s.at, class), l.lengths.after(s.chars))
}

// Accepts reports whether a text may end in s.
func (l *Language) Accepts(s *State) bool {
	if s.byte != l.spell.d.Start() || s.chars < l.lengths.min {
		return false
	}
	return slices.ContainsFunc(s.at, func(at int32) bool { return l.a.states[at].accept })
}

// Continues reports whether a text may continue in s.
func (s *State) Continues() bool { return !s.next.empty() }

// AppendKey appends a key that tells s from other states of its language.
func (s *State) AppendKey(key []byte) []byte {
	return appendInts(appendInts(key, []int32{s.byte, int32(s.chars), int32(len(s.at))}), s.at)
}

// Steps returns the approximate work of a step from s.
func (s *State) Steps() int { return len(s.at) }

// Bytes returns the approximate memory of s.
func (s *State) Bytes() int { return 4*len(s.at) + 80 }

// Match reports whether text, in its spelling, is one of l.
func (l *Language) Match(text string) bool {
	s := l.Start()
	for i := 0; i < len(text) && s != nil; i++ {
		s = l.Step(s, text[i])
	}
	return s != nil && l.Accepts(s)
}

// classes returns the classes of s.
func (s *classSet) classes(yield func(k int) bool) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			if !yield(64*i + bits.TrailingZeros64(w)) {
				return
			}
		}
	}
}
