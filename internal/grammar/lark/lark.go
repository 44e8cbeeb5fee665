// Package lark reads grammars in the notation of the Python package lark, and makes regular expressions of them.
//
//	start: "SELECT " column (", " column)* tail?
//	tail: " LIMIT " INT
//	column: /[a-z_]+/
//	%import common.INT
//
// An expression matches the texts of the rule start as a whole. A rule may call itself at the beginning or at the end of
// an alternative, which is repetition. Any other recursion, such as nested brackets, is an error, because no regular
// expression matches it. There is no lexer: a terminal matches each text of its expression, so priorities have no effect.
package lark

import (
	"fmt"
	"slices"
	"strings"
)

// An Error says what is wrong with a grammar, and where.
type Error struct {
	Line    int // from 1; 0 if it is about the whole
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "lark: " + e.Message
	}
	return fmt.Sprintf("lark: line %d: %s", e.Line, e.Message)
}

// maxExpression bounds the length of an expression.
const maxExpression = 1 << 16

// Expression returns a regular expression, as package regex reads it, that matches the texts of a grammar. It fails with
// an *Error.
func Expression(src string) (string, error) {
	g, err := parse(src)
	if err != nil {
		return "", err
	}
	start := g.symbols["start"]
	if start == nil {
		return "", &Error{0, `there is no rule "start"`}
	}
	c := &compiler{grammar: g, done: map[*symbol]string{}, busy: map[*symbol]bool{}}
	var skipped []string
	for _, e := range g.ignored {
		text, err := c.expression(e, true)
		if err != nil {
			return "", err
		}
		skipped = append(skipped, text)
	}
	if len(skipped) > 0 {
		c.skip = group(skipped) + "*"
	}
	text, err := c.symbol(start)
	return text + c.skip, err
}

// compiler makes expressions of symbols.
type compiler struct {
	grammar *grammar
	skip    string // matches ignored text; "" without any
	done    map[*symbol]string
	busy    map[*symbol]bool
}

// symbol returns the expression of a rule or a terminal.
func (c *compiler) symbol(s *symbol) (string, error) {
	if text, ok := c.done[s]; ok {
		return text, nil
	}
	if s.body == nil {
		return "", &Error{s.line, fmt.Sprintf("%q is not defined", s.name)}
	}
	if c.busy[s] {
		return "", &Error{s.line, fmt.Sprintf("%q calls itself, and not only at the beginning or the end of its alternatives: such nesting is not supported", s.name)}
	}
	c.busy[s] = true
	defer delete(c.busy, s)
	text, err := c.body(s)
	if err == nil && len(text) > maxExpression {
		err = &Error{s.line, fmt.Sprintf("%q is too large", s.name)}
	}
	if err == nil {
		c.done[s] = text
	}
	return text, err
}

// recursion has the alternatives of a rule A by where they call A, without that call.
type recursion struct {
	base   []string // nowhere
	before []string // at the end: "before A"
	behind []string // at the beginning: "A behind"
	middle []string // at both ends: "A middle A"
}

// body returns the expression of what s is defined as.
func (c *compiler) body(s *symbol) (string, error) {
	if s.terminal() {
		return c.expression(s.body, true)
	}
	var r recursion
	for _, parts := range s.alternatives() {
		calls := func(e *expr) bool { return e.kind == call && e.symbol == s }
		first := len(parts) > 0 && calls(parts[0])
		last := len(parts) > 1 && calls(parts[len(parts)-1])
		to := &r.base
		switch {
		case first && len(parts) == 1:
			continue // A: A
		case first && last:
			to, parts = &r.middle, parts[1:len(parts)-1]
		case first:
			to, parts = &r.behind, parts[1:]
		case last:
			to, parts = &r.before, parts[:len(parts)-1]
		}
		text, err := c.sequence(parts, false)
		if err != nil {
			return "", err
		}
		*to = append(*to, text)
	}
	if len(r.base) == 0 {
		return "", &Error{s.line, fmt.Sprintf("no text matches %q, which always calls itself", s.name)}
	}
	return r.expression(), nil
}

// expression is what the alternatives match together: "before* base behind*", several of them with a middle in between.
func (r *recursion) expression() string {
	one := group(r.base)
	if len(r.before) > 0 {
		one = group(r.before) + "*" + one
	}
	if len(r.behind) > 0 {
		one += group(r.behind) + "*"
	}
	if len(r.middle) > 0 {
		one += "(?:" + group(r.middle) + one + ")*"
	}
	return "(?:" + one + ")"
}

// group is an expression that matches any of the alternatives.
func group(alternatives []string) string { return "(?:" + strings.Join(alternatives, "|") + ")" }

// expression returns the expression of e, part of a terminal or of a rule.
func (c *compiler) expression(e *expr, terminal bool) (string, error) {
	switch e.kind {
	case pattern:
		return c.spaced(e.text, terminal), nil
	case call:
		if terminal && !e.symbol.terminal() {
			return "", &Error{e.line, fmt.Sprintf("a terminal cannot call the rule %q", e.symbol.name)}
		}
		text, err := c.symbol(e.symbol)
		if e.symbol.terminal() {
			text = c.spaced(text, terminal)
		}
		return text, err
	case concat:
		return c.sequence(e.subs, terminal)
	case repeat:
		text, err := c.expression(e.subs[0], terminal)
		return "(?:" + text + ")" + e.text, err
	}
	var alternatives []string
	for _, s := range e.subs {
		text, err := c.expression(s, terminal)
		if err != nil {
			return "", err
		}
		alternatives = append(alternatives, text)
	}
	return c.bounded(group(alternatives), e.line)
}

// spaced is the expression of a terminal where a rule has it: ignored text may stand before it.
func (c *compiler) spaced(text string, terminal bool) string {
	if terminal {
		return text
	}
	return c.skip + text
}

func (c *compiler) sequence(parts []*expr, terminal bool) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		text, err := c.expression(p, terminal)
		if err != nil {
			return "", err
		}
		if b.WriteString(text); b.Len() > maxExpression {
			return c.bounded(b.String(), p.line)
		}
	}
	return b.String(), nil
}

func (c *compiler) bounded(text string, line int) (string, error) {
	if len(text) > maxExpression {
		return "", &Error{line, "the grammar is too large"}
	}
	return text, nil
}

// alternatives are the parts of each alternative of a rule.
func (s *symbol) alternatives() (list [][]*expr) {
	subs := []*expr{s.body}
	if s.body.kind == alt {
		subs = s.body.subs
	}
	for _, e := range subs {
		parts := []*expr{e}
		if e.kind == concat {
			parts = slices.Clone(e.subs)
		}
		list = append(list, parts)
	}
	return list
}
