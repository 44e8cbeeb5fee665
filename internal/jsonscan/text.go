package jsonscan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Space returns the offset of the first byte at or after at that is not white space.
func Space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// shortString is how many bytes of a string are compared one by one before a search for the
// quote is faster.
const shortString = 32

// StringEnd returns the offset behind the string that begins at at. It does not check what is
// inside. ok is false if the text ends before the string does.
func StringEnd(text []byte, at int) (end int, ok bool) {
	i := at + 1
	for near := min(len(text), i+shortString); i < near; i++ {
		switch text[i] {
		case '"':
			return i + 1, true
		case '\\':
			i++
		}
	}
	for begin := i; i < len(text); {
		k := bytes.IndexByte(text[i:], '"')
		if k < 0 {
			break
		}
		quote, slashes := i+k, 0
		for quote-slashes > begin && text[quote-slashes-1] == '\\' {
			slashes++
		}
		if i = quote + 1; slashes%2 == 0 {
			return i, true
		}
	}
	return len(text), false
}

// ValueEnd returns the offset behind the value that begins at at. It balances brackets of any
// kind and does not check what is inside. If there is no value, end is at. The kind is None,
// or Unterminated or UnclosedValue if the text ends too early.
func ValueEnd(text []byte, at int) (end int, kind Kind) {
	depth := 0
	for i := at; i < len(text); i++ {
		switch text[i] {
		case '"':
			end, ok := StringEnd(text, i)
			if !ok {
				return end, Unterminated
			}
			if depth == 0 {
				return end, None
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, None
			}
			if depth--; depth == 0 {
				return i + 1, None
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i, None
			}
		}
	}
	if depth > 0 {
		return len(text), UnclosedValue
	}
	return len(text), None
}

// Unescape decodes the escape that begins at at with a backslash, both halves of a surrogate
// pair together. end is behind it, or the place of the fault if kind is not None.
func Unescape[T string | []byte](text T, at int) (r rune, end int, kind Kind) {
	if at+1 >= len(text) {
		return 0, len(text), Unterminated
	}
	switch c := text[at+1]; c {
	case '"', '\\', '/':
		return rune(c), at + 2, None
	case 'b':
		return '\b', at + 2, None
	case 'f':
		return '\f', at + 2, None
	case 'n':
		return '\n', at + 2, None
	case 'r':
		return '\r', at + 2, None
	case 't':
		return '\t', at + 2, None
	case 'u':
	default:
		return 0, at + 2, UnknownEscape
	}
	r, end, ok := hex(text, at+2)
	switch {
	case !ok:
		return 0, end, HexDigits
	case !utf16.IsSurrogate(r):
		return r, end, None
	case r >= 0xdc00:
		return 0, end, LoneLow
	case len(text)-end < 6 || text[end] != '\\' || text[end+1] != 'u':
		return 0, end, LoneHigh
	}
	low, end, ok := hex(text, end+2)
	if !ok {
		return 0, end, PairDigits
	}
	if low < 0xdc00 || low >= 0xe000 {
		return 0, end, LoneHigh
	}
	return utf16.DecodeRune(r, low), end, None
}

// hex reads four hexadecimal digits. end is behind them, or at the first byte that is none.
func hex[T string | []byte](text T, at int) (r rune, end int, ok bool) {
	if len(text)-at < 4 {
		return 0, at, false
	}
	for end = at; end < at+4; end++ {
		c := text[end]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, end, false
		}
		r = r<<4 | rune(c)
	}
	return r, end, true
}

func appendRune(out []byte, r rune) []byte {
	if r < utf8.RuneSelf {
		return append(out, byte(r))
	}
	return utf8.AppendRune(out, r)
}

// Number returns the offset behind the number that begins at at, or the place of the fault if
// kind is not None. integer reports that it has neither fraction nor exponent.
func Number[T string | []byte](text T, at int) (end int, integer bool, kind Kind) {
	if at < len(text) && text[at] == '-' {
		at++
	}
	whole := at
	at = digits(text, at)
	switch {
	case at == whole:
		return at, false, ExpectedValue
	case text[whole] == '0' && at > whole+1:
		return at, false, LeadingZero
	}
	integer = true
	if at < len(text) && text[at] == '.' {
		integer = false
		fraction := at + 1
		if at = digits(text, fraction); at == fraction {
			return at, false, FractionDigits
		}
	}
	if at < len(text) && (text[at] == 'e' || text[at] == 'E') {
		integer = false
		at++
		if at < len(text) && (text[at] == '+' || text[at] == '-') {
			at++
		}
		exponent := at
		if at = digits(text, exponent); at == exponent {
			return at, false, ExponentDigits
		}
	}
	return at, integer, None
}

func digits[T string | []byte](text T, at int) int {
	for at < len(text) && text[at] >= '0' && text[at] <= '9' {
		at++
	}
	return at
}
