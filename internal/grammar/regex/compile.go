package regex

import (
	"github.com/heftai/heft/internal/grammar/dfa"
)

// Text returns the automaton of the UTF-8 texts that src matches as a whole. It returns an *Error
// or [dfa.ErrTooLarge].
func Text(src string, budget *dfa.Budget) (*dfa.DFA, error) {
	n, err := parse(src)
	if err != nil {
		return nil, err
	}
	parts := n.flat()
	if len(parts) > 0 && parts[0].kind == begin {
		parts = parts[1:]
	}
	if k := len(parts); k > 0 && parts[k-1].kind == end {
		parts = parts[:k-1]
	}
	e, err := (&node{kind: concat, subs: parts}).expr(dfa.Runes, nil)
	if err != nil {
		return nil, err
	}
	return dfa.Compile(e, budget)
}

// Quoted returns the automaton of JSON strings, with their quotes, in whose text src matches
// somewhere. char encodes one character of ranges inside a JSON string. It returns an *Error or
// [dfa.ErrTooLarge].
func Quoted(src string, char func(ranges []dfa.Range) *dfa.Expr, budget *dfa.Budget) (*dfa.DFA, error) {
	n, err := parse(src)
	if err != nil {
		return nil, err
	}
	q := quoter{char: char, any: dfa.Star(char(anyRune)), quote: dfa.Byte('"', '"'), budget: budget}
	parts, looks := n.flat(), []*node(nil)
	if len(parts) > 0 && parts[0].kind == begin {
		for len(parts) > 1 && parts[1].kind == look {
			looks = append(looks, parts[1])
			parts = append([]*node{parts[0]}, parts[2:]...)
		}
	}
	d, err := q.search(parts)
	if err != nil {
		return nil, err
	}
	for _, l := range looks {
		ahead, err := q.search(append([]*node{{kind: begin}}, l.subs[0].flat()...))
		if err != nil {
			return nil, err
		}
		if l.negative {
			d, err = dfa.Subtract(d, ahead, budget)
		} else {
			d, err = dfa.Intersect(d, ahead, budget)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// quoter makes automata of strings with their quotes.
type quoter struct {
	char       encoder
	any, quote *dfa.Expr
	budget     *dfa.Budget
}

// search returns the strings in which parts match somewhere.
func (q *quoter) search(parts []*node) (*dfa.DFA, error) {
	before, after := dfa.Concat(q.quote, q.any), dfa.Concat(q.any, q.quote)
	if len(parts) > 0 && parts[0].kind == begin {
		before, parts = q.quote, parts[1:]
	}
	if k := len(parts); k > 0 && parts[k-1].kind == end {
		after, parts = q.quote, parts[:k-1]
	}
	middle := &node{kind: concat, subs: parts}
	if !middle.has(begin) && !middle.has(end) {
		e, err := middle.expr(q.char, nil)
		if err != nil {
			return nil, err
		}
		return dfa.Compile(dfa.Concat(before, e, after), q.budget)
	}
	// Inner anchors read the quotes themselves.
	e, err := middle.expr(q.char, &anchors{q.quote, q.quote})
	if err != nil {
		return nil, err
	}
	d, err := dfa.Compile(dfa.Concat(dfa.Optional(before), e, dfa.Optional(after)), q.budget)
	if err != nil {
		return nil, err
	}
	all, err := dfa.Compile(dfa.Concat(q.quote, q.any, q.quote), q.budget)
	if err != nil {
		return nil, err
	}
	return dfa.Intersect(d, all, q.budget)
}
