package regex

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
)

// Limits of the automaton of a whole expression, before it becomes a program.
const (
	cheapSteps  = 30_000_000
	cheapStates = 1 << 12
)

// mostOptional is the maximum number of parts of a repeated part that may be empty.
const mostOptional = 512

// fewParts is the size up to which consecutive parts become one automaton. Tests change it.
var fewParts = 256

// errNoProgram means that an expression cannot be written as a program.
var errNoProgram = errors.New("regex: the expression has lookahead or inner anchors")

// Cheap calls do with a small part of budget. Expressions whose automata exceed it are better read
// by a program, if they can be.
func Cheap[T any](budget *dfa.Budget, do func(*dfa.Budget) (T, error)) (T, error) {
	small := dfa.Budget{Steps: min(budget.Steps, cheapSteps), States: min(budget.States, cheapStates)}
	before := small.Steps
	made, err := do(&small)
	budget.Steps -= before - small.Steps
	return made, err
}

// AppendText adds to b, before next, the texts that src matches as a whole. Repetitions are counted
// while a text is read, so that an expression may have several large ones. ok is false if src
// cannot be written in this way or is too large for it.
func AppendText(b *grammar.Builder, src string, next grammar.Pos) (at grammar.Pos, ok bool) {
	n, err := parse(src)
	if err != nil {
		return grammar.Fail, false
	}
	parts := n.flat()
	if len(parts) > 0 && parts[0].kind == begin {
		parts = parts[1:]
	}
	if k := len(parts); k > 0 && parts[k-1].kind == end {
		parts = parts[:k-1]
	}
	w := writer{b: b, char: dfa.Runes, name: "text", count: (*grammar.Terminal).CountedText}
	at, err = w.sequence(parts, next)
	return at, err == nil
}

// AppendQuoted adds to b, before next, the JSON strings in whose text src matches somewhere. char
// encodes one character of ranges inside a JSON string. ok is false if src cannot be written in
// this way, is too large for it, or if one of its texts may have less than least or more than most
// characters; most is negative without a maximum.
func AppendQuoted(b *grammar.Builder, src string, char func(ranges []dfa.Range) *dfa.Expr, least, most int, next grammar.Pos) (at grammar.Pos, ok bool) {
	n, err := parse(src)
	if err != nil {
		return grammar.Fail, false
	}
	w := writer{b: b, char: char, name: "string", count: (*grammar.Terminal).CountedPart}
	branches := n.branches()
	alts := make([]grammar.Pos, 0, len(branches))
	for _, parts := range branches {
		shortest, longest := (&node{kind: concat, subs: parts}).lengths()
		if shortest < least || most >= 0 && (longest == dfa.Unbounded || longest > most) {
			return grammar.Fail, false
		}
		at, err := w.sequence(parts, b.Literal(`"`, next))
		if err != nil {
			return grammar.Fail, false
		}
		alts = append(alts, b.Literal(`"`, at))
	}
	return b.Split(alts...), true
}

// writer adds the parts of an expression to a grammar.
type writer struct {
	b     *grammar.Builder
	char  encoder
	name  string // of char
	count func(t *grammar.Terminal, least, most int) (*grammar.Terminal, bool)
}

// node returns a position that reads n, then next.
func (w *writer) node(n *node, next grammar.Pos) (grammar.Pos, error) {
	if n.weight() <= fewParts {
		return w.automaton([]*node{n}, next)
	}
	switch n.kind {
	case class:
		return w.automaton([]*node{n}, next)
	case concat:
		return w.sequence(n.flat(), next)
	case alt:
		alts := make([]grammar.Pos, len(n.subs))
		for i, s := range n.subs {
			var err error
			if alts[i], err = w.node(s, next); err != nil {
				return grammar.Fail, err
			}
		}
		return w.b.Split(alts...), nil
	case repeat:
		return w.repeat(n, next)
	}
	return grammar.Fail, errNoProgram
}

// sequence reads parts one after the other. Small ones become one automaton.
func (w *writer) sequence(parts []*node, next grammar.Pos) (grammar.Pos, error) {
	for k := len(parts); k > 0; {
		from, size := k, 0
		for from > 0 && size+parts[from-1].weight() <= fewParts {
			from--
			size += parts[from].weight()
		}
		var err error
		if from < k {
			next, err = w.automaton(parts[from:k], next)
		} else {
			from--
			next, err = w.node(parts[from], next)
		}
		if err != nil {
			return grammar.Fail, err
		}
		k = from
	}
	return next, nil
}

func (w *writer) automaton(parts []*node, next grammar.Pos) (grammar.Pos, error) {
	e, err := (&node{kind: concat, subs: parts}).expr(w.char, nil)
	if err != nil {
		return grammar.Fail, err
	}
	d, err := Cheap(w.b.Budget, func(small *dfa.Budget) (*dfa.DFA, error) { return dfa.Compile(e, small) })
	if err != nil {
		return grammar.Fail, err
	}
	return w.b.Term(w.b.Terminal(d), next), nil
}

// repeat reads a repetition. Those of a class count characters, all others are loops.
func (w *writer) repeat(n *node, next grammar.Pos) (grammar.Pos, error) {
	body := n.subs[0]
	if body.kind == class && len(body.ranges) > 0 {
		t, err := w.b.Library().Shared(fmt.Sprintf("repeated %s %v", w.name, body.ranges), func() (*dfa.DFA, error) {
			return dfa.Compile(dfa.Star(w.char(body.ranges)), w.b.Budget)
		})
		if err != nil {
			return grammar.Fail, err
		}
		if counted, ok := w.count(t, n.min, n.max); ok {
			return w.b.Term(counted, next), nil
		}
		return grammar.Fail, errNoProgram
	}
	least := n.min
	if shortest, _ := body.lengths(); shortest == 0 {
		// Repetitions that read nothing do not count.
		if body.nodes() > mostOptional {
			return grammar.Fail, errNoProgram
		}
		if body, least = body.nonEmpty(), 0; body == nil {
			return next, nil
		}
	}
	var err error
	at := w.b.Repeat(least, n.max, func(again grammar.Pos) grammar.Pos {
		var begin grammar.Pos
		if begin, err = w.node(body, again); err != nil {
			return grammar.Fail
		}
		return begin
	}, next)
	return at, err
}
