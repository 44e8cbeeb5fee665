// Package jsontext defines the parts of JSON as regular expressions over bytes: strings, numbers
// and white space.
package jsontext

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/grammar/dfa"
)

func one(b byte) *dfa.Expr { return dfa.Byte(b, b) }

func anyOf(s string) *dfa.Expr {
	var alts []*dfa.Expr
	for i := range len(s) {
		alts = append(alts, one(s[i]))
	}
	return dfa.Alt(alts...)
}

var (
	quote  = one('"')
	digit  = dfa.Byte('0', '9')
	hex    = dfa.Alt(digit, dfa.Byte('a', 'f'), dfa.Byte('A', 'F'))
	exact4 = func(e *dfa.Expr) *dfa.Expr { return dfa.Concat(one('\\'), one('u'), e) }
)

// plain are the characters that need no escape in a JSON string.
var plain = dfa.Negate([]dfa.Range{{Lo: 0, Hi: 0x1F}, {Lo: '"', Hi: '"'}, {Lo: '\\', Hi: '\\'}})

// char matches any character of a string in any spelling. It does not match a lone surrogate.
func char() *dfa.Expr {
	high := dfa.Concat(anyOf("dD"), anyOf("89abAB"), hex, hex)
	low := dfa.Concat(anyOf("dD"), anyOf("cdefCDEF"), hex, hex)
	others := dfa.Alt(
		dfa.Concat(dfa.Alt(digit, anyOf("abcefABCEF")), hex, hex, hex),
		dfa.Concat(anyOf("dD"), dfa.Byte('0', '7'), hex, hex),
	)
	return dfa.Alt(
		dfa.Runes(plain),
		dfa.Concat(one('\\'), anyOf(`"\/bfnrt`)),
		exact4(others),
		dfa.Concat(exact4(high), exact4(low)),
	)
}

// String matches any string with its quotes.
func String() *dfa.Expr { return dfa.Concat(quote, dfa.Star(char()), quote) }

// Char matches one character of ranges in its shortest spelling: unescaped if possible.
func Char(ranges []dfa.Range) *dfa.Expr {
	alts := []*dfa.Expr{dfa.Runes(dfa.Overlap(ranges, plain))}
	for _, r := range dfa.Normalise(ranges) {
		for c := r.Lo; c <= min(r.Hi, '\\'); c++ {
			if c < ' ' || c == '"' || c == '\\' {
				alts = append(alts, escaped(c))
			}
		}
	}
	return dfa.Alt(alts...)
}

const short = "\b\f\n\r\t\"\\"

// escaped returns the escape of a character that a string cannot contain unescaped.
func escaped(c rune) *dfa.Expr {
	if i := strings.IndexRune(short, c); i >= 0 {
		return dfa.Concat(one('\\'), one(`bfnrt"\`[i]))
	}
	last := one("0123456789abcdef"[c&15])
	if c&15 > 9 {
		last = dfa.Alt(last, one("0123456789ABCDEF"[c&15]))
	}
	return dfa.Concat(dfa.Literal(`\u00`), one("01"[c>>4]), last)
}

// Any are all characters.
var Any = []dfa.Range{{Lo: 0, Hi: dfa.MaxRune}}

// Short matches any string in its shortest spelling, with its quotes.
func Short() *dfa.Expr { return dfa.Concat(quote, dfa.Star(Char(Any)), quote) }

// Lengths matches any string in its shortest spelling with least to most characters.
func Lengths(least, most int) *dfa.Expr {
	return dfa.Concat(quote, dfa.Repeat(Char(Any), least, most), quote)
}

// Escape returns the shortest spelling of a byte of UTF-8 in a string.
func Escape(b byte) string {
	switch i := strings.IndexByte(short, b); {
	case i >= 0:
		return `\` + `bfnrt"\`[i:i+1]
	case b < ' ':
		return fmt.Sprintf(`\u%04x`, b)
	}
	return string([]byte{b})
}

// Quote returns s in its shortest spelling, with quotes.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch k := strings.IndexRune(short, r); {
		case k >= 0 && r != utf8.RuneError:
			b.WriteByte('\\')
			b.WriteByte(`bfnrt"\`[k])
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

// Spellings returns the spellings of s that [Short] matches. For a string without control
// characters that is only Quote's.
func Spellings(s string) []string {
	text := Quote(s)
	upper := strings.Builder{}
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+5 < len(text) && text[i+1] == 'u' {
			upper.WriteString(`\u` + strings.ToUpper(text[i+2:i+6]))
			i += 5
			continue
		}
		if text[i] == '\\' {
			upper.WriteByte(text[i])
			i++
		}
		upper.WriteByte(text[i])
	}
	if upper.String() == text {
		return []string{text}
	}
	return []string{text, upper.String()}
}

// Space matches white space: some blanks, or line breaks with an indentation. It is not empty. Its
// length is limited, so that a model cannot write it for ever.
func Space() *dfa.Expr {
	const blanks, breaks, indentation = 8, 2, 64
	blank, newline := anyOf(" \t"), dfa.Concat(dfa.Optional(one('\r')), one('\n'))
	return dfa.Alt(
		dfa.Repeat(blank, 1, blanks),
		dfa.Concat(dfa.Repeat(newline, 1, breaks), dfa.Repeat(blank, 0, indentation)),
	)
}

func integer() *dfa.Expr { return dfa.Alt(one('0'), dfa.Concat(dfa.Byte('1', '9'), dfa.Star(digit))) }

// Integer matches an integer without fraction and exponent.
func Integer() *dfa.Expr {
	return dfa.Alt(one('0'), dfa.Concat(dfa.Optional(one('-')), dfa.Byte('1', '9'), dfa.Star(digit)))
}

// Number matches any number.
func Number() *dfa.Expr {
	return dfa.Concat(Decimal(), dfa.Optional(dfa.Concat(anyOf("eE"), dfa.Optional(anyOf("+-")), dfa.Repeat(digit, 1, dfa.Unbounded))))
}

// Decimal matches a number without an exponent.
func Decimal() *dfa.Expr {
	return dfa.Concat(dfa.Optional(one('-')), integer(), dfa.Optional(dfa.Concat(one('.'), dfa.Repeat(digit, 1, dfa.Unbounded))))
}

// A Bound is a decimal limit of numbers: its integer digits without leading zeros ("" for 0) and
// its fraction without trailing zeros.
type Bound struct {
	Negative       bool
	Integer, Fract string
	Strict         bool // the bound itself is not allowed
}

func (b Bound) zero() bool { return b.Integer == "" && b.Fract == "" }

// AtLeast matches decimals that are at least b or, if b is strict, greater.
func AtLeast(b Bound) *dfa.Expr {
	minus := one('-')
	if b.Negative && !b.zero() {
		return dfa.Alt(magnitude(Bound{}, false), dfa.Concat(minus, magnitude(b, true)))
	}
	return magnitude(b, false)
}

// AtMost matches decimals that are at most b or, if b is strict, less.
func AtMost(b Bound) *dfa.Expr {
	minus := one('-')
	switch {
	case b.Negative && !b.zero():
		return dfa.Concat(minus, magnitude(b, false))
	case b.zero() && b.Strict:
		return dfa.Concat(minus, magnitude(Bound{Strict: true}, false))
	}
	return dfa.Alt(dfa.Concat(minus, magnitude(Bound{Strict: true}, false)), magnitude(b, true))
}

// magnitude matches decimals without a sign that are at most b, or at least.
func magnitude(b Bound, most bool) *dfa.Expr {
	fraction := dfa.Concat(one('.'), dfa.Repeat(digit, 1, dfa.Unbounded))
	alts := []*dfa.Expr{
		dfa.Concat(integerBeyond(b.Integer, most), dfa.Optional(fraction)),
		dfa.Concat(dfa.Literal(orZero(b.Integer)), one('.'), fractionBeyond(b.Fract, most)),
	}
	zeros := dfa.Optional(dfa.Concat(one('.'), dfa.Repeat(one('0'), 1, dfa.Unbounded)))
	equal := dfa.Concat(dfa.Literal(orZero(b.Integer)), zeros)
	if b.Fract != "" {
		equal = dfa.Concat(dfa.Literal(orZero(b.Integer)+"."+b.Fract), dfa.Star(one('0')))
	}
	if !b.Strict {
		alts = append(alts, equal)
	}
	if most && b.Fract != "" { // the integer alone, and fractions that are a beginning of b's
		alts = append(alts, dfa.Concat(dfa.Literal(orZero(b.Integer)), zeros))
	}
	return dfa.Alt(alts...)
}

func orZero(digits string) string {
	if digits == "" {
		return "0"
	}
	return digits
}

// integerBeyond matches integers that are less than digits, or more.
func integerBeyond(digits string, less bool) *dfa.Expr {
	var alts []*dfa.Expr
	some := dfa.Byte('1', '9')
	if less {
		if digits == "" {
			return dfa.None()
		}
		alts = append(alts, one('0'))
		if len(digits) > 1 {
			alts = append(alts, dfa.Concat(some, dfa.Repeat(digit, 0, len(digits)-2)))
		}
	} else {
		if digits == "" {
			return dfa.Concat(some, dfa.Star(digit))
		}
		alts = append(alts, dfa.Concat(some, dfa.Repeat(digit, len(digits), dfa.Unbounded)))
	}
	for i := range len(digits) {
		lowest := byte('0')
		if i == 0 {
			lowest = '1'
		}
		if d := other(digits[i], lowest, less); d != nil {
			alts = append(alts, dfa.Concat(dfa.Literal(digits[:i]), d, dfa.Repeat(digit, len(digits)-i-1, len(digits)-i-1)))
		}
	}
	return dfa.Alt(alts...)
}

// fractionBeyond matches digits of a fraction that is less than that of digits, or more, but not
// equal to a beginning of digits with zeros.
func fractionBeyond(digits string, less bool) *dfa.Expr {
	var alts []*dfa.Expr
	for i := range len(digits) {
		if d := other(digits[i], '0', less); d != nil {
			alts = append(alts, dfa.Concat(dfa.Literal(digits[:i]), d, dfa.Star(digit)))
		}
		if less && i > 0 {
			alts = append(alts, dfa.Literal(digits[:i]))
		}
	}
	if !less {
		alts = append(alts, dfa.Concat(dfa.Literal(digits), dfa.Star(one('0')), dfa.Byte('1', '9'), dfa.Star(digit)))
	}
	return dfa.Alt(alts...)
}

// other matches digits from lowest that are less than d, or more.
func other(d, lowest byte, less bool) *dfa.Expr {
	switch {
	case less && d > lowest:
		return dfa.Byte(lowest, d-1)
	case !less && d < '9':
		return dfa.Byte(d+1, '9')
	}
	return nil
}
