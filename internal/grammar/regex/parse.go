package regex

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// Limits of an expression.
const (
	maxDepth  = 200
	maxNodes  = 20_000
	maxRepeat = 100_000
)

// An Error says which part of an expression is invalid or not supported.
type Error struct{ Message string }

func (e *Error) Error() string { return "regex: " + e.Message }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

type parser struct {
	src   string
	pos   int
	depth int
	nodes int
	fold  bool // letters match in both cases
	folds int  // ranges of the classes that were folded
}

func parse(src string) (*node, error) {
	if !utf8.ValidString(src) {
		return nil, errorf("the expression is not UTF-8")
	}
	p := &parser{src: src}
	n, err := p.alternatives()
	if err == nil && p.pos < len(p.src) {
		err = errorf("unexpected ) at byte %d", p.pos)
	}
	return n, err
}

func (p *parser) more() bool { return p.pos < len(p.src) }

func (p *parser) rest() string { return p.src[p.pos:] }

func (p *parser) take(s string) bool {
	if strings.HasPrefix(p.rest(), s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.rest())
	p.pos += n
	return r
}

func (p *parser) count() error {
	if p.nodes++; p.nodes > maxNodes {
		return errorf("the expression has more than %d parts", maxNodes)
	}
	if p.folds > maxFolds {
		return errorf("the classes that match in both cases are too large")
	}
	return nil
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errorf("groups are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	var list []*node
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		list = append(list, n)
		if !p.take("|") {
			break
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return &node{kind: alt, subs: list}, nil
}

func (p *parser) sequence() (*node, error) {
	n := &node{kind: concat}
	for p.more() && p.src[p.pos] != '|' && p.src[p.pos] != ')' {
		item, err := p.atom()
		if err != nil {
			return nil, err
		}
		if item == nil {
			continue
		}
		if item, err = p.quantified(item); err != nil {
			return nil, err
		}
		n.subs = append(n.subs, item)
		if err := p.count(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// quantified reads the quantifier of n, if there is one.
func (p *parser) quantified(n *node) (*node, error) {
	least, most, from := 0, 0, p.pos
	switch {
	case p.take("*"):
		most = dfa.Unbounded
	case p.take("+"):
		least, most = 1, dfa.Unbounded
	case p.take("?"):
		most = 1
	default:
		var ok bool
		var err error
		if least, most, ok, err = p.bounds(); err != nil || !ok {
			return n, err
		}
	}
	if n.kind == begin || n.kind == end || n.kind == look {
		return nil, errorf("nothing to repeat at byte %d", p.pos)
	}
	n = &node{kind: repeat, min: least, max: most, from: from, to: p.pos, subs: []*node{n}}
	if p.take("?") { // a lazy quantifier matches the same language
		return n, nil
	}
	if strings.HasPrefix(p.rest(), "+") {
		return nil, errorf("possessive repetition is not supported")
	}
	if strings.HasPrefix(p.rest(), "*") {
		return nil, errorf("nothing to repeat at byte %d", p.pos)
	}
	return n, nil
}

// bounds reads {2}, {2,} or {2,5}. Any other braces are text.
func (p *parser) bounds() (least, most int, ok bool, err error) {
	if !strings.HasPrefix(p.rest(), "{") {
		return 0, 0, false, nil
	}
	inside, _, closed := strings.Cut(p.rest()[1:], "}")
	low, high, two := strings.Cut(inside, ",")
	if !closed || !digits(low) && !(two && low == "" && digits(high)) || two && high != "" && !digits(high) {
		return 0, 0, false, nil
	}
	p.pos += len(inside) + 2
	if low == "" {
		return 0, 0, false, errorf("{%s} means different things in ECMAScript and Python; write {0%s}", inside, inside)
	}
	number := func(s string) int {
		v, err := strconv.Atoi(s)
		if err != nil || v > maxRepeat {
			return maxRepeat + 1
		}
		return v
	}
	least = number(low)
	switch {
	case !two:
		most = least
	case high == "":
		most = dfa.Unbounded
	default:
		most = number(high)
	}
	if least > maxRepeat || most > maxRepeat {
		return 0, 0, false, errorf("{%s} repeats more than %d times", inside, maxRepeat)
	}
	if most >= 0 && most < least {
		return 0, 0, false, errorf("{%s} is not in order", inside)
	}
	return least, most, true, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// atom reads one part. It returns nil for a flag, which is not a part.
func (p *parser) atom() (*node, error) {
	switch c := p.src[p.pos]; c {
	case '^':
		p.pos++
		return &node{kind: begin}, nil
	case '$':
		p.pos++
		return &node{kind: end}, nil
	case '.':
		p.pos++
		return &node{kind: class, ranges: anyButNewline}, nil
	case '(':
		p.pos++
		return p.group()
	case '[':
		p.pos++
		return p.class()
	case '\\':
		p.pos++
		ranges, err := p.escape(false)
		return p.folded(ranges), err
	case '*', '+', '?':
		return nil, errorf("nothing to repeat at byte %d", p.pos)
	}
	r := p.rune()
	return p.folded([]dfa.Range{{Lo: r, Hi: r}}), nil
}

// Prefixes of groups that match what their contents match.
var plainGroups = []string{"?:", "?P<", "?<"}

func (p *parser) group() (*node, error) {
	var around *node
	fold := p.fold
	switch {
	case p.take("?="):
		around = &node{kind: look}
	case p.take("?!"):
		around = &node{kind: look, negative: true}
	case strings.HasPrefix(p.rest(), "?<=") || strings.HasPrefix(p.rest(), "?<!"):
		return nil, errorf("lookbehind is not supported")
	case p.take("?i)"):
		if p.depth > 1 || strings.TrimPrefix(p.src[:p.pos], "(?i)") != "" {
			return nil, errorf("flags are supported at the beginning only")
		}
		p.fold = true
		return nil, nil
	case p.take("?i:"):
		p.fold = true
	case p.take("?"):
		p.pos--
		if err := p.groupName(); err != nil {
			return nil, err
		}
	}
	n, err := p.alternatives()
	p.fold = fold
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, errorf("a group is not closed")
	}
	if around != nil {
		around.subs = []*node{n}
		return around, nil
	}
	return n, nil
}

// groupName reads the prefix of a group: that it is not captured, or its name.
func (p *parser) groupName() error {
	for _, begin := range plainGroups {
		if !p.take(begin) {
			continue
		}
		if begin == "?:" {
			return nil
		}
		name, _, ok := strings.Cut(p.rest(), ">")
		if !ok || name == "" {
			return errorf("the name of a group is not closed")
		}
		p.pos += len(name) + 1
		return nil
	}
	return errorf("the group (%.3s is not supported", p.rest())
}
