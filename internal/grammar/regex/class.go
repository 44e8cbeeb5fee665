package regex

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heftai/heft/internal/grammar/dfa"
)

var (
	digit = []dfa.Range{{Lo: '0', Hi: '9'}}
	word  = []dfa.Range{{Lo: '0', Hi: '9'}, {Lo: 'A', Hi: 'Z'}, {Lo: '_', Hi: '_'}, {Lo: 'a', Hi: 'z'}}
	// space has the characters that are white space in both ECMAScript and Python; spaces has those
	// that are in either.
	space = []dfa.Range{{Lo: '\t', Hi: '\r'}, {Lo: ' ', Hi: ' '}, {Lo: 0xA0, Hi: 0xA0}, {Lo: 0x1680, Hi: 0x1680}, {Lo: 0x2000, Hi: 0x200A},
		{Lo: 0x2028, Hi: 0x2029}, {Lo: 0x202F, Hi: 0x202F}, {Lo: 0x205F, Hi: 0x205F}, {Lo: 0x3000, Hi: 0x3000}}
	spaces = append([]dfa.Range{{Lo: 0x1C, Hi: 0x1F}, {Lo: 0x85, Hi: 0x85}, {Lo: 0xFEFF, Hi: 0xFEFF}}, space...)

	anyButNewline = dfa.Negate([]dfa.Range{{Lo: '\n', Hi: '\n'}, {Lo: '\r', Hi: '\r'}, {Lo: 0x2028, Hi: 0x2029}})
	anyRune       = []dfa.Range{{Lo: 0, Hi: dfa.MaxRune}}
)

// table returns the characters of Unicode tables.
func table(tables ...*unicode.RangeTable) []dfa.Range {
	var out []dfa.Range
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, dfa.Range{Lo: lo, Hi: hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, dfa.Range{Lo: r, Hi: r})
		}
	}
	for _, t := range tables {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return dfa.Normalise(out)
}

// maxFolds is the maximum number of ranges of classes that match letters in both cases.
const maxFolds = 1 << 17

// folded returns a class of ranges. If the flag is set, the class matches letters in both cases.
func (p *parser) folded(ranges []dfa.Range) *node {
	if !p.fold || p.folds > maxFolds { // count returns an error for too many
		return &node{kind: class, ranges: ranges}
	}
	p.folds += 1 + len(ranges)
	const most = 1 << 12
	all := append([]dfa.Range(nil), ranges...)
	for _, r := range ranges {
		for c := r.Lo; c <= min(r.Hi, r.Lo+most); c++ {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				all = append(all, dfa.Range{Lo: f, Hi: f})
			}
		}
	}
	return &node{kind: class, ranges: dfa.Normalise(all)}
}

// class reads [a-z].
func (p *parser) class() (*node, error) {
	negative := p.take("^")
	var ranges []dfa.Range
	for {
		if !p.more() {
			return nil, errorf("a class is not closed")
		}
		if p.take("]") {
			break
		}
		lo, err := p.classItem()
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, lo...)
		single := len(lo) == 1 && lo[0].Lo == lo[0].Hi
		if !single || !strings.HasPrefix(p.rest(), "-") || strings.HasPrefix(p.rest(), "-]") {
			continue
		}
		p.pos++
		if !p.more() {
			return nil, errorf("a class is not closed")
		}
		hi, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if len(hi) != 1 || hi[0].Lo != hi[0].Hi {
			ranges = append(append(ranges, dfa.Range{Lo: '-', Hi: '-'}), hi...)
			continue
		}
		if hi[0].Lo < lo[0].Lo {
			return nil, errorf("the range %c-%c is not in order", lo[0].Lo, hi[0].Lo)
		}
		ranges[len(ranges)-1].Hi = hi[0].Lo
		if p.nodes += 1; p.nodes > maxNodes {
			return nil, errorf("the expression has more than %d parts", maxNodes)
		}
	}
	n := p.folded(dfa.Normalise(ranges))
	if negative {
		n.ranges = dfa.Negate(n.ranges)
	}
	return n, nil
}

func (p *parser) classItem() ([]dfa.Range, error) {
	if p.take(`\`) {
		return p.escape(true)
	}
	r := p.rune()
	return []dfa.Range{{Lo: r, Hi: r}}, nil
}

var controls = map[byte]rune{'n': '\n', 't': '\t', 'r': '\r', 'f': '\f', 'v': '\v', 'a': '\a'}

// escape reads the text after a backslash.
func (p *parser) escape(inClass bool) ([]dfa.Range, error) {
	if !p.more() {
		return nil, errorf("the expression ends with a backslash")
	}
	one := func(r rune) []dfa.Range { return []dfa.Range{{Lo: r, Hi: r}} }
	c := p.src[p.pos]
	p.pos++
	switch c {
	case 'd':
		return digit, nil
	case 'D':
		return dfa.Negate(table(unicode.Nd)), nil
	case 'w':
		return word, nil
	case 'W':
		return dfa.Negate(append(table(unicode.L, unicode.N), word...)), nil
	case 's':
		return space, nil
	case 'S':
		return dfa.Negate(spaces), nil
	case 'p', 'P':
		return p.property(c == 'P')
	case 'x':
		return p.hex(2)
	case 'u':
		return p.unicodeEscape()
	case 'c':
		if p.more() && unicode.IsLetter(rune(p.src[p.pos])) && p.src[p.pos] < utf8.RuneSelf {
			p.pos++
			return one(rune(p.src[p.pos-1] & 31)), nil
		}
		return nil, errorf(`\c needs a letter`)
	case '0':
		return one(0), nil
	case 'b':
		if inClass {
			return one('\b'), nil
		}
	}
	if r, ok := controls[c]; ok {
		return one(r), nil
	}
	if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c))) {
		return nil, errorf(`\%c is not supported`, c)
	}
	p.pos--
	return one(p.rune()), nil
}

func (p *parser) hex(n int) ([]dfa.Range, error) {
	if len(p.rest()) < n {
		return nil, errorf("an escape needs %d hexadecimal digits", n)
	}
	v, err := strconv.ParseUint(p.rest()[:n], 16, 32)
	if err != nil {
		return nil, errorf("%q is no hexadecimal number", p.rest()[:n])
	}
	p.pos += n
	return []dfa.Range{{Lo: rune(v), Hi: rune(v)}}, nil
}

// unicodeEscape reads 00e9, {1f600} or a pair of surrogates.
func (p *parser) unicodeEscape() ([]dfa.Range, error) {
	if p.take("{") {
		text, _, ok := strings.Cut(p.rest(), "}")
		v, err := strconv.ParseUint(text, 16, 32)
		if !ok || err != nil || v > dfa.MaxRune {
			return nil, errorf(`\u{%.10s is no character`, text)
		}
		p.pos += len(text) + 1
		return []dfa.Range{{Lo: rune(v), Hi: rune(v)}}, nil
	}
	r, err := p.hex(4)
	if err != nil || r[0].Lo < 0xD800 || r[0].Lo > 0xDBFF || !p.take(`\u`) {
		return r, err
	}
	low, err := p.hex(4)
	if err != nil || low[0].Lo < 0xDC00 || low[0].Lo > 0xDFFF {
		return nil, errorf("half a pair of surrogates")
	}
	c := (r[0].Lo-0xD800)<<10 + low[0].Lo - 0xDC00 + 0x10000
	return []dfa.Range{{Lo: c, Hi: c}}, nil
}

// property reads {L}, {Letter}, {Script=Greek} or L.
func (p *parser) property(negative bool) ([]dfa.Range, error) {
	name := ""
	if p.take("{") {
		var ok bool
		if name, _, ok = strings.Cut(p.rest(), "}"); !ok {
			return nil, errorf(`\p{ is not closed`)
		}
		p.pos += len(name) + 1
	} else if p.more() {
		name = string(p.rune())
	}
	if _, value, ok := strings.Cut(name, "="); ok {
		name = value
	}
	if short, ok := longNames[name]; ok {
		name = short
	}
	t := unicode.Categories[name]
	if t == nil {
		t = unicode.Scripts[name]
	}
	if t == nil {
		return nil, errorf(`\p{%s} is not supported`, name)
	}
	if ranges := table(t); !negative {
		return ranges, nil
	}
	return dfa.Negate(table(t)), nil
}

var longNames = map[string]string{
	"Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Mark": "M", "Number": "N", "Decimal_Number": "Nd",
	"Punctuation": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs", "Other": "C", "Control": "Cc",
}
