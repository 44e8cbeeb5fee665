package grammar

import (
	"fmt"
)

// Grammar returns the grammar whose program starts at begin. It returns [ErrTooLarge], [ErrEmpty]
// or [ErrLeftRecursion].
func (b *Builder) Grammar(begin Pos) (*Grammar, error) {
	if b.large {
		return nil, ErrTooLarge
	}
	if begin == Fail {
		return nil, ErrEmpty
	}
	if err := b.prune(begin); err != nil {
		return nil, err
	}
	if err := b.checkRecursion(); err != nil {
		return nil, err
	}
	g := &Grammar{vocab: b.lib.vocab, ops: b.ops, terms: b.terms, loops: b.loops, rules: b.rules, begin: begin}
	g.base = 48*len(b.ops) + 16*len(b.loops) + 400
	for _, t := range b.byDFA {
		g.base += t.lex.automaton()
	}
	for _, t := range b.terms {
		if t.lang != nil {
			g.base += t.lang.Bytes()
		}
	}
	g.reset()
	if _, err := g.first(); err != nil {
		return nil, err
	}
	return g, nil
}

// prune drops the alternatives from which no text can end.
func (b *Builder) prune(begin Pos) error {
	ends, err := b.fixpoint(func(p Pos, ends func(Pos) bool) bool {
		o := &b.ops[p]
		switch o.kind {
		case opReturn:
			return true
		case opTerm:
			return ends(o.next)
		case opCall:
			return ends(b.rules[o.arg]) && ends(o.next)
		case opEnter:
			return ends(b.loops[o.arg].body) && ends(o.next)
		case opBack:
			return ends(b.loops[o.arg].next)
		}
		for _, a := range o.alts {
			if ends(a) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	if !ends(begin) {
		return ErrEmpty
	}
	for i := range b.ops {
		o := &b.ops[i]
		if o.kind != opSplit {
			continue
		}
		alts := o.alts[:0]
		for _, a := range o.alts {
			if ends(a) {
				alts = append(alts, a)
			}
		}
		o.alts = alts
	}
	return nil
}

// fixpoint returns the smallest set of positions for which holds is true, given that it is true for
// the positions found so far.
func (b *Builder) fixpoint(holds func(p Pos, known func(Pos) bool) bool) (func(Pos) bool, error) {
	known := make([]bool, len(b.ops))
	get := func(p Pos) bool { return p != Fail && known[p] }
	for changed := true; changed; {
		changed = false
		if err := b.Budget.Spend(10 * len(b.ops)); err != nil {
			return nil, ErrTooLarge
		}
		for p := range known {
			if !known[p] && holds(Pos(p), get) {
				known[p], changed = true, true
			}
		}
	}
	return get, nil
}

// maxEmptyRepeats is the maximum number of repetitions of a part that may be empty.
const maxEmptyRepeats = 64

// checkRecursion finds rules that call themselves before they read a byte.
func (b *Builder) checkRecursion() error {
	empty, err := b.fixpoint(func(p Pos, empty func(Pos) bool) bool {
		o := &b.ops[p]
		switch o.kind {
		case opReturn:
			return true
		case opTerm:
			return false
		case opCall:
			return empty(b.rules[o.arg]) && empty(o.next)
		case opEnter:
			return empty(b.loops[o.arg].body) && empty(o.next)
		case opBack:
			return true // true for the body alone
		}
		for _, a := range o.alts {
			if empty(a) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	for _, l := range b.loops {
		if n := max(l.min, l.max); l.body != Fail && empty(l.body) && n > maxEmptyRepeats {
			return fmt.Errorf("%w: what may be empty is repeated up to %d times, want at most %d", ErrTooLarge, n, maxEmptyRepeats)
		}
	}
	return findCycles(len(b.ops), func(p Pos, visit func(to Pos, call bool)) {
		o := &b.ops[p]
		switch o.kind {
		case opCall:
			visit(b.rules[o.arg], true)
			if empty(b.rules[o.arg]) {
				visit(o.next, false)
			}
		case opEnter: // its frames end before the loop starts again
			visit(b.loops[o.arg].body, false)
		case opBack:
			visit(b.loops[o.arg].next, false)
		case opSplit:
			for _, a := range o.alts {
				visit(a, false)
			}
		}
	})
}
