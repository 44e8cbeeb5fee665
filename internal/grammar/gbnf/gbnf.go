// Package gbnf reads llama.cpp's notation of grammars, GBNF, and makes grammars of it.
//
//	root  ::= "answer: " word ("," ws word)*
//	word  ::= [a-z]+ | "\"" [^"\n]{1,20} "\""
//	ws    ::= " "?
//
// The text matches the rule root as a whole. Rules that do not call themselves become parts of
// automata, so a grammar without recursion is one automaton. Left recursion is an error, as in
// llama.cpp.
package gbnf

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
)

// An Error says what is wrong with a grammar, and where.
type Error struct {
	Line    int // from 1; 0 if the error is about the whole grammar
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "gbnf: " + e.Message
	}
	return fmt.Sprintf("gbnf: line %d: %s", e.Line, e.Message)
}

// Append adds the texts that match src to a grammar, before next. It returns an *Error or
// [grammar.ErrTooLarge].
func Append(b *grammar.Builder, src string, next grammar.Pos) (grammar.Pos, error) {
	rules, err := parse(src)
	if err != nil {
		return grammar.Fail, err
	}
	root := rules.byName["root"]
	if root == nil || root.body == nil {
		return grammar.Fail, &Error{0, `there is no rule "root"`}
	}
	for _, r := range rules.list {
		if r.body == nil {
			return grammar.Fail, &Error{r.line, fmt.Sprintf("the rule %q is not defined", r.name)}
		}
	}
	c := &compiler{b: b, calls: map[*rule]grammar.Rule{}, regular: map[*node]*dfa.Expr{}, sizes: map[*rule]int{}}
	c.findRecursion(rules.list)
	at, err := c.position(root.body, next)
	for err == nil && len(c.todo) > 0 {
		r := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		var begin grammar.Pos
		if begin, err = c.position(r.body, grammar.Return); err == nil {
			b.Define(c.calls[r], begin)
		}
	}
	if errors.Is(err, dfa.ErrTooLarge) {
		err = grammar.ErrTooLarge
	}
	return at, err
}

// compiler makes positions from rules.
type compiler struct {
	b       *grammar.Builder
	calls   map[*rule]grammar.Rule
	todo    []*rule
	regular map[*node]*dfa.Expr
	sizes   map[*rule]int
}

// maxInline is the maximum number of parts of a rule that becomes a part of an automaton.
const maxInline = 5000

// findRecursion finds the rules that call themselves, directly or through others, and those that
// are too large to be copied to each call.
func (c *compiler) findRecursion(rules []*rule) {
	const unseen, busy, done = 0, 1, 2
	state := map[*rule]int{}
	var visit func(r *rule) int
	var size func(n *node) int
	size = func(n *node) int {
		total := 1
		if n.kind == call {
			total += visit(n.rule)
		}
		for _, s := range n.subs {
			total += size(s)
		}
		if n.kind == repeat {
			total *= max(n.max, n.min, 1)
		}
		return min(total, maxInline+1)
	}
	visit = func(r *rule) int {
		if state[r] == busy {
			r.recursive = true
			return maxInline + 1
		}
		if state[r] == unseen {
			state[r] = busy
			c.sizes[r] = size(r.body)
			state[r] = done
		}
		return c.sizes[r]
	}
	for _, r := range rules {
		visit(r)
	}
}

// expr returns n as an expression, or nil if it is not regular.
func (c *compiler) expr(n *node) *dfa.Expr {
	if e, ok := c.regular[n]; ok {
		return e
	}
	e := c.newExpr(n)
	c.regular[n] = e
	return e
}

func (c *compiler) newExpr(n *node) *dfa.Expr {
	switch n.kind {
	case text:
		return dfa.Literal(n.text)
	case class:
		return dfa.Runes(n.ranges)
	case call:
		if n.rule.recursive || c.sizes[n.rule] > maxInline {
			return nil
		}
		return c.expr(n.rule.body)
	}
	subs := make([]*dfa.Expr, len(n.subs))
	for i, s := range n.subs {
		if subs[i] = c.expr(s); subs[i] == nil {
			return nil
		}
	}
	switch n.kind {
	case alt:
		return dfa.Alt(subs...)
	case repeat:
		return dfa.Repeat(subs[0], n.min, n.max)
	}
	return dfa.Concat(subs...)
}

// position returns a position that reads n, then next.
func (c *compiler) position(n *node, next grammar.Pos) (grammar.Pos, error) {
	if next == grammar.Fail {
		return next, nil
	}
	if e := c.expr(n); e != nil {
		return c.terminal(e, next)
	}
	switch n.kind {
	case call:
		r, ok := c.calls[n.rule]
		if !ok {
			r = c.b.Rule()
			c.calls[n.rule] = r
			c.todo = append(c.todo, n.rule)
		}
		return c.b.Call(r, next), nil
	case alt:
		alts := make([]grammar.Pos, len(n.subs))
		for i, s := range n.subs {
			var err error
			if alts[i], err = c.position(s, next); err != nil {
				return grammar.Fail, err
			}
		}
		return c.b.Split(alts...), nil
	case repeat:
		var failed error
		at := c.b.Repeat(n.min, n.max, func(next grammar.Pos) grammar.Pos {
			at, err := c.position(n.subs[0], next)
			if err != nil {
				failed = err
			}
			return at
		}, next)
		return at, failed
	}
	return c.sequence(n.subs, next)
}

// sequence returns a position that reads the parts in order. Adjacent regular parts become one
// terminal.
func (c *compiler) sequence(parts []*node, next grammar.Pos) (grammar.Pos, error) {
	var err error
	for end := len(parts); end > 0 && err == nil; {
		begin := end
		var together []*dfa.Expr
		for begin > 0 {
			e := c.expr(parts[begin-1])
			if e == nil {
				break
			}
			begin--
			together = append([]*dfa.Expr{e}, together...)
		}
		if begin < end {
			next, err = c.terminal(dfa.Concat(together...), next)
		} else {
			begin--
			next, err = c.position(parts[begin], next)
		}
		end = begin
	}
	return next, err
}

func (c *compiler) terminal(e *dfa.Expr, next grammar.Pos) (grammar.Pos, error) {
	d, err := dfa.Compile(e, c.b.Budget)
	if err != nil {
		return grammar.Fail, err
	}
	return c.b.Term(c.b.Terminal(d), next), nil
}
