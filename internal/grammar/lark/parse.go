package lark

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heftai/heft/internal/grammar/dfa"
)

type kind uint8

const (
	pattern kind = iota // text is a regular expression
	call
	concat
	alt
	repeat
)

// expr is a part of a definition.
type expr struct {
	kind   kind
	line   int
	text   string
	symbol *symbol
	subs   []*expr
	min    int // of a repeat
	max    int // below 0: no maximum
}

// symbol is a rule or, if its name is in capitals, a terminal.
type symbol struct {
	name string
	line int   // where it is defined or first used
	body *expr // nil: not defined
}

func (s *symbol) terminal() bool {
	first := strings.TrimLeft(s.name, "_")
	return first != "" && unicode.IsUpper(rune(first[0]))
}

type source struct {
	symbols map[string]*symbol
	ignored []*expr
}

// Limits of a grammar.
const (
	maxDepth  = 60
	maxParts  = 20_000
	maxRepeat = 10_000
	maxSource = 1 << 20
)

type parser struct {
	source
	src    string
	pos    int
	line1  int // lines before pos1
	pos1   int
	depth  int // of brackets
	parts  int
	budget *dfa.Budget // of checks of expressions
}

func parse(src string) (*source, error) {
	if len(src) > maxSource {
		return nil, errorAt(0, "it has more than %d bytes", maxSource)
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Message: "it is not UTF-8"}
	}
	p := &parser{source: source{symbols: map[string]*symbol{}}, src: src, budget: &dfa.Budget{Steps: checkSteps, States: checkStates}}
	for p.space(true); p.pos < len(p.src); p.space(true) {
		var err error
		if p.src[p.pos] == '%' {
			err = p.directive()
		} else {
			err = p.definition()
		}
		if err != nil {
			return nil, err
		}
	}
	return &p.source, nil
}

// line returns the number of the current line, from 1. It continues counting from the last call.
func (p *parser) line() int {
	pos := min(p.pos, len(p.src))
	if pos < p.pos1 {
		p.line1, p.pos1 = 0, 0
	}
	p.line1 += strings.Count(p.src[p.pos1:pos], "\n")
	p.pos1 = pos
	return 1 + p.line1
}

func (p *parser) fail(format string, args ...any) error {
	return errorAt(p.line(), format, args...)
}

func (p *parser) rest() string { return p.src[p.pos:] }

func (p *parser) take(s string) bool {
	if strings.HasPrefix(p.rest(), s) {
		p.pos += len(s)
		return true
	}
	return false
}

// space skips blanks and comments and, if lines is set, line breaks.
func (p *parser) space(lines bool) {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '#' || strings.HasPrefix(p.rest(), "//"):
			n := strings.IndexByte(p.rest(), '\n')
			if n < 0 {
				n = len(p.rest())
			}
			p.pos += n
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' && lines:
			p.pos++
		default:
			return
		}
	}
}

// name reads the name of a symbol. It returns "" if there is none.
func (p *parser) name() string {
	n := 0
	for n < len(p.rest()) && isWord(p.rest()[n]) {
		n++
	}
	name := p.rest()[:n]
	p.pos += n
	return name
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *parser) use(name string, line int) *symbol {
	s := p.symbols[name]
	if s == nil {
		s = &symbol{name: name, line: line}
		p.symbols[name] = s
	}
	return s
}

// definition reads "name: alternatives".
func (p *parser) definition() error {
	for p.take("?") || p.take("!") {
	}
	name := p.name()
	if name == "" {
		return p.fail("want the name of a rule or a terminal, got %.10q", p.rest())
	}
	line := p.line()
	if p.take("{") {
		return p.fail("%q is a template: templates are not supported", name)
	}
	if p.take(".") {
		p.take("-")
		p.name() // a priority
	}
	if p.space(false); !p.take(":") {
		return p.fail("want a colon behind %q", name)
	}
	body, err := p.alternatives()
	if err != nil {
		return err
	}
	if p.pos < len(p.src) && p.src[p.pos] != '\n' {
		return p.fail("%.10q is not expected here", p.rest())
	}
	return p.define(name, line, body)
}

func (p *parser) define(name string, line int, body *expr) error {
	s := p.use(name, line)
	if s.body != nil {
		return errorAt(line, "%q is defined twice", name)
	}
	s.line, s.body = line, body
	return nil
}

// directive reads a line that starts with %.
func (p *parser) directive() error {
	p.pos++
	word := p.name()
	p.space(false)
	switch word {
	case "ignore":
		e, err := p.alternatives()
		p.ignored = append(p.ignored, e)
		return err
	case "import":
		return p.imports()
	}
	return p.fail("%%%s is not supported: use %%import of common and %%ignore", word)
}

// imports reads "common.INT", "common.INT -> NAME" or "common (INT, WS)".
func (p *parser) imports() error {
	if from := p.name(); from != "common" {
		return p.fail("only terminals of common can be imported")
	}
	var names []string
	if p.take(".") {
		names = append(names, p.name())
	} else if p.space(false); p.take("(") {
		for {
			p.space(true)
			names = append(names, p.name())
			if p.space(true); p.take(")") {
				break
			}
			if !p.take(",") {
				return p.fail("want a comma or a bracket")
			}
		}
	}
	to := ""
	if p.space(false); p.take("->") {
		p.space(false)
		to = p.name()
	}
	for _, name := range names {
		text, known := common[name]
		if !known {
			return p.fail("there is no terminal common.%s", name)
		}
		if to != "" {
			name = to
		}
		if err := p.define(name, p.line(), &expr{kind: pattern, line: p.line(), text: "(?:" + text + ")"}); err != nil {
			return err
		}
	}
	return nil
}

// alternatives reads alternatives up to the end of the line, unless the next line starts with |, or
// up to a closing bracket.
func (p *parser) alternatives() (*expr, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail("brackets are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	e := &expr{kind: alt, line: p.line()}
	for {
		one, err := p.sequence()
		if err != nil {
			return nil, err
		}
		e.subs = append(e.subs, one)
		at := p.pos
		if p.space(true); !p.take("|") {
			if p.depth == 1 {
				p.pos = at
			}
			break
		}
	}
	if len(e.subs) == 1 {
		return e.subs[0], nil
	}
	return e, nil
}

func (p *parser) sequence() (*expr, error) {
	e := &expr{kind: concat, line: p.line()}
	for {
		p.space(p.depth > 1)
		if p.pos == len(p.src) || strings.IndexByte("\n|)]", p.src[p.pos]) >= 0 {
			return e, nil
		}
		if p.take("->") {
			p.space(false)
			p.name() // of what lark calls the result
			continue
		}
		one, err := p.repeated()
		if err != nil {
			return nil, err
		}
		e.subs = append(e.subs, one)
	}
}

// repeated reads an atom and its quantifier.
func (p *parser) repeated() (*expr, error) {
	if p.parts++; p.parts > maxParts {
		return nil, p.fail("the grammar has more than %d parts", maxParts)
	}
	e, err := p.atom()
	if err != nil {
		return nil, err
	}
	r := &expr{kind: repeat, line: p.line(), max: dfa.Unbounded, subs: []*expr{e}}
	switch {
	case p.take("*"):
	case p.take("+"):
		r.min = 1
	case p.take("?"):
		r.max = 1
	default:
		if p.space(false); !p.take("~") {
			return e, nil
		}
		r.min, r.max, err = p.counts()
	}
	return r, err
}

// counts reads "3" or "2..5".
func (p *parser) counts() (least, most int, err error) {
	number := func() (int, error) {
		p.space(false)
		n, err := strconv.Atoi(p.name())
		if err != nil || n > maxRepeat {
			return 0, p.fail("want a number up to %d behind ~", maxRepeat)
		}
		return n, nil
	}
	least, err = number()
	most = least
	if p.space(false); err == nil && p.take("..") {
		most, err = number()
	}
	if err == nil && most < least {
		err = p.fail("%d..%d is not in order", least, most)
	}
	return least, most, err
}

// atom reads a text, an expression, a name or brackets.
func (p *parser) atom() (*expr, error) {
	line := p.line()
	switch c := p.src[p.pos]; {
	case c == '(' || c == '[':
		p.pos++
		e, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		if closing := string(")]"[strings.IndexByte("([", c)]); !p.take(closing) {
			return nil, p.fail("a bracket is not closed")
		}
		if c == '[' {
			e = &expr{kind: repeat, line: line, max: 1, subs: []*expr{e}}
		}
		return e, nil
	case c == '"':
		text, err := p.text()
		return &expr{kind: pattern, line: line, text: text}, err
	case c == '/':
		text, err := p.regexp()
		return &expr{kind: pattern, line: line, text: text}, err
	case isWord(c):
		name := p.name()
		if p.take("{") {
			return nil, p.fail("%q is a template: templates are not supported", name)
		}
		return &expr{kind: call, line: line, symbol: p.use(name, line)}, nil
	}
	return nil, p.fail("%.10q is not expected here", p.rest())
}
