package grammar

import (
	"errors"
	"slices"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// ErrTooLarge means that a grammar exceeds its limits of time or memory.
var ErrTooLarge = errors.New("grammar: the grammar is too large")

// ErrEmpty means that no text matches a grammar.
var ErrEmpty = errors.New("grammar: no text matches")

// ErrLeftRecursion means that a rule calls itself before it has read a byte.
var ErrLeftRecursion = errors.New("grammar: a rule is left-recursive")

// A Pos is a position of a program. It stands for all that is read from there to the end of the
// rule.
type Pos int32

// Fail is a position from which nothing matches.
const Fail Pos = -1

// Return is the position at the end of a rule.
const Return Pos = 0

// A Rule is a part of a program that positions call.
type Rule int32

type opKind uint8

const (
	opReturn opKind = iota
	opTerm          // read terminal arg, then next
	opCall          // run rule arg, then next
	opSplit         // any of alts
	opEnter         // begin loop arg
	opBack          // end of the body of loop arg
)

type op struct {
	kind opKind
	arg  int32
	next Pos
	alts []Pos
}

// loop repeats body from min to max times. If max is negative, there is no maximum.
type loop struct {
	min, max   int32
	body, next Pos
}

// maxLiteral is the maximum length of a literal that grammars share.
const maxLiteral = 64

// maxOps is the maximum number of positions of a program.
const maxOps = 1 << 18

// A Builder builds the program of one grammar from its end to its start. Each method takes the
// following position and returns the position at which its own part starts. It is for use by one
// goroutine.
type Builder struct {
	lib    *Library
	ops    []op
	terms  []*Terminal
	byTerm map[*Terminal]int32
	byDFA  map[*dfa.DFA]*Terminal
	loops  []loop
	rules  []Pos // where rules start
	large  bool
	quoted *quoting // nil outside Quoted
	Budget *dfa.Budget
}

// Limits of one grammar.
const (
	buildSteps  = 300_000_000
	buildStates = 1 << 16
)

// NewBuilder returns a builder of a grammar over the vocabulary of lib.
func NewBuilder(lib *Library) *Builder {
	return &Builder{
		lib: lib, ops: make([]op, 1), byTerm: map[*Terminal]int32{}, byDFA: map[*dfa.DFA]*Terminal{},
		Budget: &dfa.Budget{Steps: buildSteps, States: buildStates},
	}
}

// Library returns the library of b.
func (b *Builder) Library() *Library { return b.lib }

func (b *Builder) add(o op) Pos {
	if len(b.ops) >= maxOps || b.Budget.Spend(100) != nil {
		b.large = true
		return Fail
	}
	b.ops = append(b.ops, o)
	return Pos(len(b.ops) - 1)
}

// Terminal makes a terminal from an automaton that only this grammar uses.
func (b *Builder) Terminal(d *dfa.DFA) *Terminal {
	t := b.byDFA[d]
	if t == nil {
		t = &Terminal{lex: b.lib.lexer(d), max: -1}
		b.byDFA[d] = t
	}
	return t
}

// Term returns a position that reads t, then next.
func (b *Builder) Term(t *Terminal, next Pos) Pos {
	if t.lang != nil {
		return b.readLanguage(t, next)
	}
	late := t.lex.make != nil // it matches some text
	if next == Fail || !late && t.lex.d.IsEmpty() {
		return Fail
	}
	if b.quoted != nil {
		if t = b.quote(t); t == nil {
			return Fail
		}
	}
	p := b.addTerm(t, next)
	if (!late || b.quoted != nil) && t.accepts(t.start()) {
		return b.Split(p, next)
	}
	return p
}

// addTerm adds a position that reads t.
func (b *Builder) addTerm(t *Terminal, next Pos) Pos {
	id, ok := b.byTerm[t]
	if !ok {
		id = int32(len(b.terms))
		b.terms = append(b.terms, t)
		b.byTerm[t] = id
	}
	return b.add(op{kind: opTerm, arg: id, next: next})
}

// Literal returns a position that reads s, then next.
func (b *Builder) Literal(s string, next Pos) Pos {
	if s == "" {
		return next
	}
	if len(s) <= maxLiteral {
		return b.Term(b.lib.literal(s), next)
	}
	if b.Budget.Spend(100*len(s)) != nil {
		b.large = true
		return Fail
	}
	return b.Term(b.Terminal(dfa.Text(s)), next)
}

// Special returns a position that reads the special token id, then next.
func (b *Builder) Special(id int32, next Pos) Pos {
	return b.Literal(string(vocab.Special(id)), next)
}

// Split returns a position that reads any of the alternatives.
func (b *Builder) Split(alts ...Pos) Pos {
	var list []Pos
	for _, a := range alts {
		if a != Fail && !slices.Contains(list[:min(len(list), 16)], a) {
			list = append(list, a)
		}
	}
	switch len(list) {
	case 0:
		return Fail
	case 1:
		return list[0]
	}
	return b.add(op{kind: opSplit, alts: list})
}

// Rule declares a rule. Define sets where it starts.
func (b *Builder) Rule() Rule {
	b.rules = append(b.rules, Fail)
	return Rule(len(b.rules) - 1)
}

// Define sets the position at which a rule starts. Its parts end at [Return].
func (b *Builder) Define(r Rule, begin Pos) { b.rules[r] = begin }

// Call returns a position that runs a rule, then next.
func (b *Builder) Call(r Rule, next Pos) Pos {
	if next == Fail {
		return Fail
	}
	return b.add(op{kind: opCall, arg: int32(r), next: next})
}

// Repeat returns a position that reads the part that body makes from least to most times; if most
// is negative, any number of times. body is called once, with the position that follows each
// repetition.
func (b *Builder) Repeat(least, most int, body func(next Pos) Pos, next Pos) Pos {
	const largest = 1 << 30
	least, most = min(least, largest), min(most, largest)
	switch {
	case next == Fail || most >= 0 && least > most:
		return Fail
	case most == 0:
		return next
	case least <= 1 && most < 0:
		again := b.add(op{kind: opSplit})
		if again == Fail {
			return Fail
		}
		begin := body(again)
		alts := []Pos{next}
		if begin != Fail {
			alts = []Pos{begin, next}
		}
		b.ops[again].alts = alts
		if least == 0 {
			return again
		}
		return begin
	case most == 1:
		begin := body(next)
		if least == 0 {
			return b.Split(begin, next)
		}
		return begin
	}
	id := int32(len(b.loops))
	b.loops = append(b.loops, loop{int32(least), int32(most), Fail, next})
	back := b.add(op{kind: opBack, arg: id})
	if back == Fail {
		return Fail
	}
	begin := body(back)
	b.loops[id].body = begin
	if begin == Fail {
		if least == 0 {
			return next
		}
		return Fail
	}
	enter := b.add(op{kind: opEnter, arg: id, next: next})
	if least == 0 {
		return b.Split(enter, next)
	}
	return enter
}
