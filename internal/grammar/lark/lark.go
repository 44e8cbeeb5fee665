// Package lark converts grammars in the notation of the Python package lark to regular expressions
// or grammars.
//
//	start: "SELECT " column (", " column)* tail?
//	tail: " LIMIT " INT
//	column: /[a-z_]+/
//	%import common.INT
//
// An expression matches the texts of the rule start as a whole. A rule may call itself at the start
// or at the end of an alternative, which is a repetition. For any other recursion, such as nested
// brackets, there is a grammar but no expression. There is no lexer: a terminal matches each text of
// its expression, so priorities have no effect.
package lark

import (
	"fmt"
	"slices"
	"strings"
)

// An Error says what is wrong with a grammar, and where.
type Error struct {
	Line    int // from 1; 0 if the error is about the whole grammar
	Message string
	Nested  bool // no regular expression matches the texts, but [Append] supports them
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "lark: " + e.Message
	}
	return fmt.Sprintf("lark: line %d: %s", e.Line, e.Message)
}

// Limits of the length of one expression, and of all expressions of a grammar together.
const (
	maxExpression  = 1 << 16
	maxExpressions = 1 << 22
)

// Expression returns a regular expression, in the syntax of package regex, that matches the texts
// of a grammar. It returns an *Error if there is none.
func Expression(src string) (string, error) {
	c, err := newCompiler(src)
	if err != nil {
		return "", err
	}
	text, err := c.symbol(c.start)
	return text + c.skip, err
}

// compiler makes expressions from symbols.
type compiler struct {
	start  *symbol
	skip   string // matches ignored text; "" if there is none
	done   map[*symbol]string
	failed map[*symbol]error
	busy   map[*symbol]bool
	length int // total of all in done
}

func newCompiler(src string) (*compiler, error) {
	g, err := parse(src)
	if err != nil {
		return nil, err
	}
	c := &compiler{start: g.symbols["start"], done: map[*symbol]string{}, failed: map[*symbol]error{}, busy: map[*symbol]bool{}}
	if c.start == nil {
		return nil, &Error{Message: `there is no rule "start"`}
	}
	var skipped []string
	for _, e := range g.ignored {
		text, err := c.expression(e, true)
		if err != nil {
			return nil, err
		}
		skipped = append(skipped, text)
	}
	if len(skipped) > 0 {
		c.skip = group(skipped) + "*"
	}
	return c, nil
}

// symbol returns the expression of a rule or a terminal.
func (c *compiler) symbol(s *symbol) (string, error) {
	if text, ok := c.done[s]; ok {
		return text, nil
	}
	if err := c.failed[s]; err != nil {
		return "", err
	}
	if s.body == nil {
		return "", s.errorf("%q is not defined", s.name)
	}
	if c.busy[s] {
		err := s.errorf("%q calls itself, and not only at the beginning or the end of its alternatives", s.name)
		err.Nested = !s.terminal()
		return "", err
	}
	c.busy[s] = true
	defer delete(c.busy, s)
	text, err := c.body(s)
	if c.length += len(text); err == nil && (len(text) > maxExpression || c.length > maxExpressions) {
		err = s.errorf("%q is too large", s.name)
	}
	if err != nil {
		c.failed[s] = err
		return "", err
	}
	c.done[s] = text
	return text, nil
}

// recursion has the alternatives of a rule A by the place where they call A, without that call.
type recursion[T any] struct {
	base   []T // no call
	before []T // call at the end: "before A"
	behind []T // call at the start: "A behind"
	middle []T // call at both ends: "A middle A"
}

// recursion classifies the alternatives of a rule.
func (s *symbol) recursion() (*recursion[[]*expr], error) {
	r := &recursion[[]*expr]{}
	for _, parts := range s.alternatives() {
		calls := func(e *expr) bool { return e.kind == call && e.symbol == s }
		first := len(parts) > 0 && calls(parts[0])
		last := len(parts) > 1 && calls(parts[len(parts)-1])
		switch {
		case first && len(parts) == 1: // A: A
		case first && last:
			r.middle = append(r.middle, parts[1:len(parts)-1])
		case first:
			r.behind = append(r.behind, parts[1:])
		case last:
			r.before = append(r.before, parts[:len(parts)-1])
		default:
			r.base = append(r.base, parts)
		}
	}
	if len(r.base) == 0 {
		return nil, s.errorf("no text matches %q, which always calls itself", s.name)
	}
	return r, nil
}

// body returns the expression of the definition of s.
func (c *compiler) body(s *symbol) (string, error) {
	if s.terminal() {
		return c.expression(s.body, true)
	}
	r, err := s.recursion()
	if err != nil {
		return "", err
	}
	var texts recursion[string]
	for _, l := range []struct {
		from [][]*expr
		to   *[]string
	}{{r.base, &texts.base}, {r.before, &texts.before}, {r.behind, &texts.behind}, {r.middle, &texts.middle}} {
		for _, parts := range l.from {
			text, err := c.sequence(parts, false)
			if err != nil {
				return "", err
			}
			*l.to = append(*l.to, text)
		}
	}
	return joined(&texts), nil
}

// joined returns the expression that all alternatives together match: "before* base behind*",
// several of them with a middle in between.
func joined(r *recursion[string]) string {
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

// group returns an expression that matches any of the alternatives.
func group(alternatives []string) string { return "(?:" + strings.Join(alternatives, "|") + ")" }

// expression returns the expression of e, part of a terminal or of a rule.
func (c *compiler) expression(e *expr, terminal bool) (string, error) {
	switch e.kind {
	case pattern:
		return c.spaced(e.text, terminal), nil
	case call:
		if terminal && !e.symbol.terminal() {
			return "", errorAt(e.line, "a terminal cannot call the rule %q", e.symbol.name)
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
		return "(?:" + text + ")" + often(e.min, e.max), err
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

// spaced returns the expression of a terminal inside a rule: ignored text may precede it.
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
		return "", errorAt(line, "the grammar is too large")
	}
	return text, nil
}

// often returns the quantifier from least to most.
func often(least, most int) string {
	if most < 0 {
		return fmt.Sprintf("{%d,}", least)
	}
	return fmt.Sprintf("{%d,%d}", least, most)
}

func errorAt(line int, format string, args ...any) *Error {
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

func (s *symbol) errorf(format string, args ...any) *Error { return errorAt(s.line, format, args...) }

// alternatives returns the parts of each alternative of a rule.
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
