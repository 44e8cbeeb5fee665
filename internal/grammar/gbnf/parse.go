package gbnf

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/grammar/dfa"
)

type kind uint8

const (
	text kind = iota
	class
	call
	concat
	alt
	repeat
)

// node is a part of a rule.
type node struct {
	kind     kind
	text     string
	ranges   []dfa.Range
	rule     *rule
	min, max int
	subs     []*node
}

type rule struct {
	name      string
	line      int   // where it is defined or first called
	body      *node // nil: not defined
	recursive bool
}

type ruleSet struct {
	byName map[string]*rule
	list   []*rule
}

func (s *ruleSet) get(name string, line int) *rule {
	r := s.byName[name]
	if r == nil {
		r = &rule{name: name, line: line}
		s.byName[name] = r
		s.list = append(s.list, r)
	}
	return r
}

// Limits of a grammar.
const (
	maxDepth  = 200
	maxNodes  = 50_000
	maxRepeat = 100_000
)

type parser struct {
	src   string
	pos   int
	depth int
	nodes int
	rules ruleSet
}

func parse(src string) (*ruleSet, error) {
	p := &parser{src: src, rules: ruleSet{byName: map[string]*rule{}}}
	if !utf8.ValidString(src) {
		return nil, &Error{0, "it is not UTF-8"}
	}
	for p.space(true); p.pos < len(p.src); p.space(true) {
		if err := p.rule(); err != nil {
			return nil, err
		}
	}
	return &p.rules, nil
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{1 + strings.Count(p.src[:min(p.pos, len(p.src))], "\n"), fmt.Sprintf(format, args...)}
}

func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) take(s string) bool {
	if strings.HasPrefix(p.src[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

// space skips blanks and comments and, if lines is set, line breaks.
func (p *parser) space(lines bool) {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '#':
			for p.pos < len(p.src) && p.src[p.pos] != '\n' {
				p.pos++
			}
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			p.pos++
		default:
			return
		}
	}
}

func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func (p *parser) name() string {
	begin := p.pos
	for isName(p.peek()) {
		p.pos++
	}
	return p.src[begin:p.pos]
}

func (p *parser) rule() error {
	line := 1 + strings.Count(p.src[:p.pos], "\n")
	name := p.name()
	if name == "" {
		return p.fail("want the name of a rule, got %q", p.peek())
	}
	p.space(false)
	if !p.take("::=") {
		return p.fail("want ::= after %q", name)
	}
	p.space(true)
	r := p.rules.get(name, line)
	if r.body != nil {
		return p.fail("the rule %q is defined twice", name)
	}
	body, err := p.alternatives(false)
	if err != nil {
		return err
	}
	r.body, r.line = body, line
	if c := p.peek(); c != 0 && c != '\n' && c != '\r' {
		return p.fail("unexpected %q in the rule %q", c, name)
	}
	return nil
}

func (p *parser) alternatives(nested bool) (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail("groups are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	var list []*node
	for {
		n, err := p.sequence(nested)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
		if !p.take("|") {
			break
		}
		p.space(true)
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return &node{kind: alt, subs: list}, nil
}

func (p *parser) sequence(nested bool) (*node, error) {
	n := &node{kind: concat}
	for {
		item, err := p.item()
		if err != nil {
			return nil, err
		}
		if item == nil {
			return n, nil
		}
		p.space(nested)
		for {
			quantified, ok, err := p.quantifier(item)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			item = quantified
			p.space(nested)
		}
		n.subs = append(n.subs, item)
	}
}

// item reads one part. It returns nil if there is none.
func (p *parser) item() (*node, error) {
	if p.nodes++; p.nodes > maxNodes {
		return nil, p.fail("the grammar has more than %d parts", maxNodes)
	}
	switch c := p.peek(); {
	case c == '"':
		p.pos++
		return p.text()
	case c == '[':
		p.pos++
		return p.class()
	case c == '.':
		p.pos++
		return &node{kind: class, ranges: []dfa.Range{{Lo: 0, Hi: dfa.MaxRune}}}, nil
	case c == '(':
		p.pos++
		p.space(true)
		n, err := p.alternatives(true)
		if err == nil && !p.take(")") {
			err = p.fail("a group is not closed")
		}
		return n, err
	case isName(c):
		line := 1 + strings.Count(p.src[:p.pos], "\n")
		return &node{kind: call, rule: p.rules.get(p.name(), line)}, nil
	case c == '<' || c == '!':
		return nil, p.fail("tokens in grammars are not supported")
	}
	return nil, nil
}

// quantifier reads the quantifier of n, if there is one.
func (p *parser) quantifier(n *node) (out *node, ok bool, err error) {
	least, most := 0, 0
	switch {
	case p.take("*"):
		most = dfa.Unbounded
	case p.take("+"):
		least, most = 1, dfa.Unbounded
	case p.take("?"):
		most = 1
	case p.take("{"):
		inside, _, closed := strings.Cut(p.src[p.pos:], "}")
		if !closed {
			return nil, false, p.fail("a repetition is not closed")
		}
		if least, most, ok = bounds(inside); !ok {
			return nil, false, p.fail("{%.20s} is no repetition of at most %d times", inside, maxRepeat)
		}
		p.pos += len(inside) + 1
	default:
		return n, false, nil
	}
	return &node{kind: repeat, min: least, max: most, subs: []*node{n}}, true, nil
}

func bounds(s string) (least, most int, ok bool) {
	low, high, two := strings.Cut(s, ",")
	number := func(s string) (int, bool) {
		v, err := strconv.Atoi(strings.TrimSpace(s))
		return v, err == nil && v >= 0 && v <= maxRepeat
	}
	least, ok = number(low)
	if strings.TrimSpace(low) == "" && two {
		least, ok = 0, true
	}
	switch {
	case !ok:
		return 0, 0, false
	case !two:
		return least, least, true
	case strings.TrimSpace(high) == "":
		return least, dfa.Unbounded, true
	}
	most, ok = number(high)
	return least, most, ok && most >= least
}

func (p *parser) text() (*node, error) {
	var b strings.Builder
	for {
		switch p.peek() {
		case 0, '\n', '\r':
			if p.pos >= len(p.src) || p.peek() != 0 {
				return nil, p.fail("a text is not closed")
			}
		case '"':
			p.pos++
			return &node{kind: text, text: b.String()}, nil
		}
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		b.WriteRune(r)
	}
}

// class reads [a-z].
func (p *parser) class() (*node, error) {
	negative := p.take("^")
	var ranges []dfa.Range
	for !p.take("]") {
		if p.pos >= len(p.src) {
			return nil, p.fail("a class is not closed")
		}
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
			if hi < lo {
				return nil, p.fail("the range %c-%c is not in order", lo, hi)
			}
		}
		ranges = append(ranges, dfa.Range{Lo: lo, Hi: hi})
		if p.nodes++; p.nodes > maxNodes {
			return nil, p.fail("the grammar has more than %d parts", maxNodes)
		}
	}
	if negative {
		ranges = dfa.Negate(ranges)
	}
	return &node{kind: class, ranges: ranges}, nil
}

var escapes = map[byte]rune{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '"': '"', '[': '[', ']': ']', '-': '-', '^': '^', '/': '/', '\'': '\''}

// char reads one character or escape.
func (p *parser) char() (rune, error) {
	if !p.take(`\`) {
		r, n := utf8.DecodeRuneInString(p.src[p.pos:])
		p.pos += n
		return r, nil
	}
	c := p.peek()
	if c == 0 {
		return 0, p.fail("the grammar ends with a backslash")
	}
	p.pos++
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits > 0 {
		if len(p.src)-p.pos < digits {
			return 0, p.fail(`\%c needs %d hexadecimal digits`, c, digits)
		}
		v, err := strconv.ParseUint(p.src[p.pos:p.pos+digits], 16, 32)
		if err != nil || v > dfa.MaxRune || !utf8.ValidRune(rune(v)) {
			return 0, p.fail(`\%c%s is no character`, c, p.src[p.pos:p.pos+digits])
		}
		p.pos += digits
		return rune(v), nil
	}
	r, ok := escapes[c]
	if !ok {
		return 0, p.fail(`\%c is not supported`, c)
	}
	return r, nil
}
