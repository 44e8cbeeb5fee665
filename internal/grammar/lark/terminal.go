package lark

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/grammar/regex"
)

// common are the terminals of lark's library of that name, as expressions.
var common = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9A-Fa-f]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL": decimal, "FLOAT": float, "SIGNED_FLOAT": `[+-]?(?:` + float + `)`,
	"NUMBER": number, "SIGNED_NUMBER": `[+-]?(?:` + number + `)`,
	"ESCAPED_STRING": `"(?:[^"\\\n]|\\[^\n])*"`,
	"LCASE_LETTER":   `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[A-Za-z]`, "WORD": `[A-Za-z]+`, "CNAME": `[A-Za-z_][0-9A-Za-z_]*`,
	"WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`, "NEWLINE": `(?:\r?\n)+`,
	"SH_COMMENT": `#[^\n]*`, "CPP_COMMENT": `//[^\n]*`, "SQL_COMMENT": `--[^\n]*`, "C_COMMENT": `/\*(?:[^*]|\*+[^*/])*\*+/`,
}

const (
	decimal  = `[0-9]+\.[0-9]*|\.[0-9]+`
	exponent = `[Ee][+-]?[0-9]+`
	float    = `[0-9]+` + exponent + `|(?:` + decimal + `)(?:` + exponent + `)?`
	number   = float + `|[0-9]+`
)

// text reads "abc", "abc"i or "a".."z", and returns an expression.
func (p *parser) text() (string, error) {
	value, err := p.quoted()
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(p.rest(), "..") && !strings.HasPrefix(p.rest(), "...") {
		p.pos += len("..")
		last, err := p.quoted()
		if err != nil {
			return "", err
		}
		if utf8.RuneCountInString(value) != 1 || utf8.RuneCountInString(last) != 1 || value > last {
			return "", p.fail("%q..%q is no range of characters", value, last)
		}
		return "[" + character(value) + "-" + character(last) + "]", nil
	}
	text := "(?:" + quote(value) + ")"
	if p.take("i") {
		text = "(?i:" + quote(value) + ")"
	}
	return text, nil
}

// character returns an escape of one character.
func character(s string) string {
	r, _ := utf8.DecodeRuneInString(s)
	return fmt.Sprintf(`\u{%x}`, r)
}

// quote returns an expression that matches only the given text.
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`\^$.|?*+()[]{}/`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quoted reads a string with Python's escapes.
func (p *parser) quoted() (string, error) {
	begin := p.pos
	if !p.take(`"`) {
		return "", p.fail("want a string")
	}
	var b strings.Builder
	for {
		if p.pos == len(p.src) || p.src[p.pos] == '\n' {
			p.pos = begin
			return "", p.fail("a string is not closed")
		}
		if p.take(`"`) {
			if b.Len() == 0 {
				return "", p.fail("a string is empty")
			}
			return b.String(), nil
		}
		r, _, rest, err := strconv.UnquoteChar(p.rest(), '"')
		if err != nil {
			return "", p.fail(`a string has the escape %.2q, which is not supported`, p.rest())
		}
		b.WriteRune(r)
		p.pos = len(p.src) - len(rest)
	}
}

// Limits of all expressions of a grammar together, when they are checked.
const (
	checkSteps  = 20_000_000
	checkStates = 1 << 14
)

// regexp reads /expression/flags.
func (p *parser) regexp() (string, error) {
	p.pos++
	begin, inClass := p.pos, false
	for ; p.pos < len(p.src) && p.src[p.pos] != '\n' && (p.src[p.pos] != '/' || inClass); p.pos++ {
		switch p.src[p.pos] {
		case '\\':
			p.pos++
		case '[':
			inClass = true
		case ']':
			inClass = false
		}
	}
	if p.pos >= len(p.src) || p.src[p.pos] != '/' {
		p.pos = begin
		return "", p.fail("an expression is not closed")
	}
	src := p.src[begin:p.pos]
	p.pos++
	fold := false
	if rest, ok := strings.CutPrefix(src, "(?i)"); ok {
		src, fold = rest, true
	}
	for p.pos < len(p.src) && isWord(p.src[p.pos]) {
		switch c := p.src[p.pos]; c {
		case 'i':
			fold = true
		case 's':
			src = dotAll(src)
		case 'u':
		default:
			return "", p.fail("the flag %c of an expression is not supported", c)
		}
		p.pos++
	}
	// In the middle of an expression, where this one will stand, anchors are errors.
	if _, err := regex.Text("x(?:"+src+")x", p.budget); err != nil {
		return "", p.fail("the expression /%.60s/ cannot be used: %s", src, strings.TrimPrefix(err.Error(), "regex: "))
	}
	if fold {
		return "(?i:" + src + ")", nil
	}
	return "(?:" + src + ")", nil
}

// dotAll returns an expression whose dots also match line breaks.
func dotAll(src string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '\\' && i+1 < len(src):
			b.WriteByte(c)
			i++
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		case c == '.' && !inClass:
			b.WriteString("[^]")
			continue
		}
		b.WriteByte(src[i])
	}
	return b.String()
}
