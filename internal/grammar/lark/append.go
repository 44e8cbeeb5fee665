package lark

import (
	"errors"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/regex"
)

// Append adds the texts of a grammar, whose rules may nest, to another one, before next. It returns
// an *Error, [grammar.ErrTooLarge] or [dfa.ErrTooLarge].
func Append(b *grammar.Builder, src string, next grammar.Pos) (grammar.Pos, error) {
	c, err := newCompiler(src)
	if err != nil {
		return grammar.Fail, err
	}
	n := &nester{compiler: c, b: b, rules: map[*symbol]grammar.Rule{}, terminals: map[string]*grammar.Terminal{}}
	if next, err = n.text(c.skip, next); err != nil {
		return grammar.Fail, err
	}
	at, err := n.symbol(c.start, next)
	for err == nil && len(n.todo) > 0 {
		s := n.todo[len(n.todo)-1]
		n.todo = n.todo[:len(n.todo)-1]
		var begin grammar.Pos
		if begin, err = n.body(s); err == nil {
			b.Define(n.rules[s], begin)
		}
	}
	return at, err
}

// nester makes positions from rules. Parts that do not nest become expressions.
type nester struct {
	*compiler
	b         *grammar.Builder
	rules     map[*symbol]grammar.Rule
	terminals map[string]*grammar.Terminal // by expression
	todo      []*symbol                    // rules whose start is not defined yet
}

// text returns a position that reads a text of an expression.
func (n *nester) text(expression string, next grammar.Pos) (grammar.Pos, error) {
	if expression == "" || next == grammar.Fail {
		return next, nil
	}
	t := n.terminals[expression]
	if t == nil {
		d, err := regex.Text("(?:"+expression+")", n.b.Budget)
		if err != nil {
			return grammar.Fail, err
		}
		t = n.b.Terminal(d)
		n.terminals[expression] = t
	}
	return n.b.Term(t, next), nil
}

// symbol returns a position that reads a rule or a terminal.
func (n *nester) symbol(s *symbol, next grammar.Pos) (grammar.Pos, error) {
	text, err := n.compiler.symbol(s)
	if err == nil {
		return n.text(text, next)
	}
	if !nested(err) {
		return grammar.Fail, err
	}
	rule, known := n.rules[s]
	if !known {
		rule = n.b.Rule()
		n.rules[s] = rule
		n.todo = append(n.todo, s)
	}
	return n.b.Call(rule, next), nil
}

// nested reports whether err is the error of a grammar that nests.
func nested(err error) bool {
	var own *Error
	return errors.As(err, &own) && own.Nested
}

// body returns a position that reads the definition of a rule.
func (n *nester) body(s *symbol) (grammar.Pos, error) {
	r, err := s.recursion()
	if err != nil {
		return grammar.Fail, err
	}
	var failed error
	any := func(list [][]*expr) func(grammar.Pos) grammar.Pos {
		return func(next grammar.Pos) grammar.Pos {
			var alts []grammar.Pos
			for _, parts := range list {
				at, err := n.sequence(parts, next)
				if err != nil {
					failed = err
				}
				alts = append(alts, at)
			}
			return n.b.Split(alts...)
		}
	}
	repeated := func(list [][]*expr, next grammar.Pos) grammar.Pos {
		if len(list) == 0 {
			return next
		}
		return n.b.Repeat(0, dfa.Unbounded, any(list), next)
	}
	one := func(next grammar.Pos) grammar.Pos { return repeated(r.before, any(r.base)(repeated(r.behind, next))) }
	next := grammar.Return
	if len(r.middle) > 0 {
		next = n.b.Repeat(0, dfa.Unbounded, func(next grammar.Pos) grammar.Pos { return any(r.middle)(one(next)) }, next)
	}
	return one(next), failed
}

// position returns a position that reads e, a part of a rule.
func (n *nester) position(e *expr, next grammar.Pos) (grammar.Pos, error) {
	text, err := n.expression(e, false)
	switch {
	case next == grammar.Fail:
		return next, nil
	case err == nil:
		return n.text(text, next)
	case !nested(err):
		return grammar.Fail, err
	}
	switch e.kind {
	case call:
		return n.symbol(e.symbol, next)
	case concat:
		return n.sequence(e.subs, next)
	case repeat:
		var failed error
		at := n.b.Repeat(e.min, e.max, func(next grammar.Pos) grammar.Pos {
			at, err := n.position(e.subs[0], next)
			if err != nil {
				failed = err
			}
			return at
		}, next)
		return at, failed
	}
	var alts []grammar.Pos
	for _, s := range e.subs {
		at, err := n.position(s, next)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, at)
	}
	return n.b.Split(alts...), nil
}

// sequence returns a position that reads the parts in order. Adjacent parts that do not nest become
// one expression.
func (n *nester) sequence(parts []*expr, next grammar.Pos) (at grammar.Pos, err error) {
	at = next
	for end := len(parts); end > 0 && err == nil; {
		begin := end
		var together []string
		for ; begin > 0; begin-- {
			text, err := n.expression(parts[begin-1], false)
			if err != nil {
				break
			}
			together = append(together, text)
		}
		if begin < end {
			slices.Reverse(together)
			at, err = n.text(strings.Join(together, ""), at)
		} else {
			begin--
			at, err = n.position(parts[begin], at)
		}
		end = begin
	}
	return at, err
}
