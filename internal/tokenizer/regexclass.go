package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// class reads what follows an opening bracket.
func (p *regexParser) class() (ranges, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("classes are nested too deeply")
	}
	defer func() { p.depth-- }()
	neg := p.take("^")
	var set, left ranges
	both := false
	for first := true; ; first = false {
		if !p.more() {
			return nil, p.fail("unterminated class")
		}
		if !first && p.take("]") {
			break
		}
		if p.take("&&") {
			if both {
				set = left.and(set)
			}
			left, set, both = set, nil, true
			continue
		}
		item, err := p.classItem()
		if err != nil {
			return nil, err
		}
		set = append(set, item...)
	}
	if both {
		set = left.and(set)
	}
	if p.fold {
		set = set.folded()
	}
	if neg {
		set = set.not()
	}
	return set.sorted(), nil
}

// classItem reads one member of a class: a set, a character or a range.
func (p *regexParser) classItem() (ranges, error) {
	if p.take("[:") {
		name, _, ok := strings.Cut(p.src[p.at:], ":]")
		p.at += min(len(name)+2, len(p.src)-p.at)
		neg := strings.HasPrefix(name, "^")
		set, known := posix(strings.TrimPrefix(name, "^"))
		if !ok || !known {
			return nil, p.fail("an unknown [:class:]")
		}
		if neg {
			set = set.not()
		}
		return set, nil
	}
	lo, err := p.classChar()
	if err != nil || len(lo) != 1 || lo[0].lo != lo[0].hi {
		return lo, err
	}
	rest := p.src[p.at:]
	if !strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "-]") {
		return lo, nil
	}
	p.at++
	hi, err := p.classChar()
	if err != nil {
		return nil, err
	}
	if len(hi) != 1 || hi[0].lo != hi[0].hi {
		return append(append(lo, runeRange{'-', '-'}), hi...), nil
	}
	if hi[0].lo < lo[0].lo {
		return nil, p.fail("a range whose end is below its start")
	}
	return ranges{{lo[0].lo, hi[0].lo}}, nil
}

// classChar reads one character, escape or nested class.
func (p *regexParser) classChar() (ranges, error) {
	if !p.more() {
		return nil, p.fail("unterminated class")
	}
	switch c := p.next(); c {
	case '[':
		return p.class()
	case '\\':
		if p.take("b") {
			return ranges{{'\b', '\b'}}, nil
		}
		return p.escape(true)
	default:
		return ranges{{c, c}}, nil
	}
}

// escapeWord returns \w outside of brackets and for \b: there the superscripts and
// fractions of Latin-1 are part of words.
func escapeWord() ranges {
	return append(wordChars(), ranges{{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}...).sorted()
}

// escape reads what follows a backslash.
func (p *regexParser) escape(inClass bool) (ranges, error) {
	if !p.more() {
		return nil, p.fail("a backslash at the end")
	}
	c := p.next()
	if name, ok := map[rune]string{'s': "space", 'd': "digit", 'w': "word", 'h': "xdigit"}[unicode.ToLower(c)]; ok {
		set, _ := posix(name)
		if name == "word" && !inClass {
			set = escapeWord()
		}
		if unicode.IsUpper(c) {
			set = set.not()
		}
		return set, nil
	}
	if k := strings.IndexRune("nrtfvae", c); k >= 0 {
		r := rune("\n\r\t\f\v\a\x1b"[k])
		return ranges{{r, r}}, nil
	}
	switch {
	case c == 'p' || c == 'P':
		return p.property(c == 'P')
	case c == 'x' || c == 'u':
		return p.hex(c)
	case c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c)):
		return nil, p.fail("an escape that is not supported")
	}
	return ranges{{c, c}}, nil
}

// property reads {Name}, {^Name} or one letter.
func (p *regexParser) property(neg bool) (ranges, error) {
	if !p.more() {
		return nil, p.fail("a property has no name")
	}
	name := string(p.next())
	if name == "{" {
		var ok bool
		if name, _, ok = strings.Cut(p.src[p.at:], "}"); !ok {
			return nil, p.fail("unterminated property")
		}
		p.at += len(name) + 1
	}
	if strings.HasPrefix(name, "^") {
		neg, name = !neg, name[1:]
	}
	set, ok := property(name)
	if !ok {
		return nil, p.fail(fmt.Sprintf("no property is named %q", name))
	}
	if neg {
		set = set.not()
	}
	return set, nil
}

// hex reads HH, {H…} or HHHH.
func (p *regexParser) hex(kind rune) (ranges, error) {
	digits := ""
	switch {
	case kind == 'x' && p.take("{"):
		var ok bool
		if digits, _, ok = strings.Cut(p.src[p.at:], "}"); !ok {
			return nil, p.fail("unterminated character number")
		}
		p.at += len(digits) + 1
	default:
		most := map[rune]int{'x': 2, 'u': 4}[kind]
		for len(digits) < most && p.more() && strings.IndexByte("0123456789abcdefABCDEF", p.src[p.at]) >= 0 {
			digits += string(p.next())
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 32)
	if err != nil || n > unicode.MaxRune {
		return nil, p.fail("a broken character number")
	}
	return ranges{{rune(n), rune(n)}}, nil
}
