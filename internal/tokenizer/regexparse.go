package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on the regular expressions of a file.
const (
	maxPattern = 1 << 14 // bytes of source
	maxProgram = 1 << 13 // instructions after expansion of counts
	maxNesting = 64
)

type nodeKind uint8

const (
	nodeEmpty  nodeKind = iota
	nodeSet             // one character of a set
	nodeCat             // subs one after the other
	nodeAlt             // the first of subs that lets the rest match
	nodeRepeat          // subs[0], min to max times
	nodeLook            // subs[0] matches here, or does not (neg)
	nodeBehind          // the character before is in the set, or is not (neg)
	nodeAtomic          // subs[0], its first way of matching only
	nodeAssert          // a place: see assert
)

// node is a regular expression's syntax tree.
type node struct {
	kind             nodeKind
	set              ranges
	subs             []*node
	min, max         int // max -1: no bound
	lazy, possessive bool
	neg              bool
	assert           byte // ^ $ A z Z b B
}

// regexParser reads Oniguruma's syntax with its Ruby meaning: ^ and $ are always
// those of lines, and (?m) lets the dot match a newline.
type regexParser struct {
	src   string
	at    int
	depth int
	fold  bool // (?i)
	dot   bool // (?m)
}

func parseRegex(src string) (*node, error) {
	if len(src) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, more than %d", len(src), maxPattern)
	}
	p := &regexParser{src: src}
	n, err := p.alternation()
	if err == nil && p.at < len(src) {
		err = p.fail("an unmatched )")
	}
	return n, err
}

func (p *regexParser) fail(what string) error {
	return fmt.Errorf("pattern %q, byte %d: %s", p.src, p.at, what)
}

func (p *regexParser) more() bool { return p.at < len(p.src) }

func (p *regexParser) next() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.at:])
	p.at += n
	return r
}

// take consumes s if it comes next.
func (p *regexParser) take(s string) bool {
	if strings.HasPrefix(p.src[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *regexParser) alternation() (*node, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("groups are nested too deeply")
	}
	fold, dot := p.fold, p.dot
	defer func() { p.depth--; p.fold, p.dot = fold, dot }()
	alt := &node{kind: nodeAlt}
	for {
		cat, err := p.concatenation()
		if err != nil {
			return nil, err
		}
		alt.subs = append(alt.subs, cat)
		if !p.take("|") {
			break
		}
	}
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

func (p *regexParser) concatenation() (*node, error) {
	cat := &node{kind: nodeCat}
	for p.more() && p.src[p.at] != '|' && p.src[p.at] != ')' {
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n, err = p.quantified(n); err != nil {
			return nil, err
		}
		cat.subs = append(cat.subs, n)
	}
	if len(cat.subs) == 1 {
		return cat.subs[0], nil
	}
	return cat, nil
}

// quantified applies the quantifiers that follow n.
func (p *regexParser) quantified(n *node) (*node, error) {
	for p.more() {
		rep := &node{kind: nodeRepeat, subs: []*node{n}, max: -1}
		interval := false
		switch {
		case p.take("*"):
		case p.take("+"):
			rep.min = 1
		case p.take("?"):
			rep.max = 1
		default:
			if interval = p.interval(rep); !interval {
				return n, nil
			}
		}
		if n.kind == nodeAssert || n.kind == nodeLook || n.kind == nodeBehind {
			return nil, p.fail("a quantifier on an assertion is not supported")
		}
		switch {
		case p.take("?"):
			rep.lazy = true
		case !interval && p.take("+"):
			rep.possessive = true
		}
		if rep.max >= 0 && rep.max < rep.min {
			return nil, p.fail("an interval whose end is below its start")
		}
		n = rep
	}
	return n, nil
}

// interval reads {n}, {n,}, {,m} or {n,m}; anything else is literal text.
func (p *regexParser) interval(rep *node) bool {
	if p.src[p.at] != '{' {
		return false
	}
	body, _, ok := strings.Cut(p.src[p.at+1:], "}")
	lo, hi, two := strings.Cut(body, ",")
	if !ok || lo == "" && hi == "" {
		return false
	}
	number := func(s string, absent int) (int, bool) {
		if s == "" {
			return absent, true
		}
		n, err := strconv.ParseUint(s, 10, 16)
		return int(n), err == nil
	}
	var okLo, okHi bool
	rep.min, okLo = number(lo, 0)
	rep.max, okHi = number(hi, -1)
	if !two {
		rep.max, okHi = rep.min, true
	}
	if !okLo || !okHi {
		return false
	}
	p.at += len(body) + 2
	return true
}

// one returns a node for one character.
func (p *regexParser) one(set ranges) *node {
	if p.fold {
		set = set.folded()
	}
	return &node{kind: nodeSet, set: set.sorted()}
}

func (p *regexParser) atom() (*node, error) {
	switch c := p.next(); c {
	case '(':
		return p.group()
	case '[':
		set, err := p.class()
		return &node{kind: nodeSet, set: set}, err
	case '.':
		if p.dot {
			return p.one(ranges{{0, unicode.MaxRune}}), nil
		}
		return p.one(ranges{{'\n', '\n'}}.not()), nil
	case '^', '$':
		return &node{kind: nodeAssert, assert: byte(c)}, nil
	case '*', '+', '?':
		return nil, p.fail("a quantifier with nothing before it")
	case '\\':
		if p.more() && strings.IndexByte("AzZbB", p.src[p.at]) >= 0 {
			return &node{kind: nodeAssert, assert: byte(p.next())}, nil
		}
		if p.take("R") {
			return lineBreak(), nil
		}
		set, err := p.escape(false)
		return p.one(set), err
	default:
		return p.one(ranges{{c, c}}), nil
	}
}

// lineBreak is \R: two characters or one, without backtracking.
func lineBreak() *node {
	set := func(r ...rune) *node { return &node{kind: nodeSet, set: ranges{{r[0], r[1]}}} }
	pair := &node{kind: nodeCat, subs: []*node{set('\r', '\r'), set('\n', '\n')}}
	single := &node{kind: nodeSet, set: ranges{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}}
	return &node{kind: nodeAtomic, subs: []*node{{kind: nodeAlt, subs: []*node{pair, single}}}}
}

// group reads what follows an opening parenthesis. Captures are not kept.
func (p *regexParser) group() (*node, error) {
	n := &node{kind: nodeCat}
	switch {
	case p.take("?:"):
	case p.take("?="):
		n = &node{kind: nodeLook}
	case p.take("?!"):
		n = &node{kind: nodeLook, neg: true}
	case p.take("?<="):
		n = &node{kind: nodeBehind}
	case p.take("?<!"):
		n = &node{kind: nodeBehind, neg: true}
	case p.take("?>"):
		n = &node{kind: nodeAtomic}
	case p.take("?#"):
		return nil, p.fail("comments are not supported")
	case p.take("?<"), p.take("?'"), p.take("?P<"):
		end := strings.IndexAny(p.src[p.at:], ">'")
		if end < 0 {
			return nil, p.fail("unterminated group name")
		}
		p.at += end + 1
	case p.take("?"):
		return p.options()
	}
	return p.body(n)
}

// body reads a group's contents and its closing parenthesis into n.
func (p *regexParser) body(n *node) (*node, error) {
	sub, err := p.alternation()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.fail("unterminated group")
	}
	if n.kind == nodeBehind {
		if sub.kind != nodeSet {
			return nil, p.fail("got a lookbehind of several characters, want one character")
		}
		n.set = sub.set
		return n, nil
	}
	n.subs = []*node{sub}
	return n, nil
}

// options reads (?im-im) or (?im-im:…).
func (p *regexParser) options() (*node, error) {
	fold, dot, on := p.fold, p.dot, true
	for p.more() {
		switch p.next() {
		case 'i':
			p.fold = on
		case 'm':
			p.dot = on
		case '-':
			on = false
		case ':':
			n, err := p.body(&node{kind: nodeCat})
			p.fold, p.dot = fold, dot
			return n, err
		case ')':
			// The options hold to the end of the enclosing group, alternatives included.
			return p.alternation()
		default:
			return nil, p.fail("an option that is not supported")
		}
	}
	return nil, p.fail("unterminated group")
}
