package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape replaces the escapes of a string literal as Python's unicode-escape
// codec does; escapes it does not know stay as they are.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	high := rune(0) // the first half of a surrogate pair
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		r, n, err := unescapeOne(&b, s[i:])
		if err != nil {
			return "", err
		}
		i += n
		switch {
		case r < 0: // written already
		case utf16.IsSurrogate(r) && r < 0xdc00 && strings.HasPrefix(s[i:], `\u`):
			high = r
		case utf16.IsSurrogate(r) && high != 0:
			b.WriteRune(utf16.DecodeRune(high, r))
			high = 0
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), nil
}

// simpleEscapes are the letters after a backslash and the characters that they stand for.
const simpleEscapes, simpleMeaning = `\'"abfnrtv`, "\\'\"\a\b\f\n\r\t\v"

// unescapeOne reads the escape at the start of s. It returns its character and
// length, or -1 if it wrote text of its own.
func unescapeOne(b *strings.Builder, s string) (rune, int, error) {
	c := s[1]
	if k := strings.IndexByte(simpleEscapes, c); k >= 0 {
		return rune(simpleMeaning[k]), 2, nil
	}
	switch {
	case c == '\n':
		return -1, 2, nil
	case c == 'x':
		return hexEscape(s, 2)
	case c == 'u':
		return hexEscape(s, 4)
	case c == 'U':
		return hexEscape(s, 8)
	case c == 'N':
		return 0, 0, failf(KindSyntax, "named characters in strings are not supported")
	case c >= '0' && c <= '7':
		n := 2
		for n < len(s) && n < 4 && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		v, err := strconv.ParseUint(s[1:n], 8, 32)
		return rune(v), n, err
	case c < utf8.RuneSelf:
		b.WriteString(s[:2])
		return -1, 2, nil
	}
	// Jinja spells other characters as escapes of their own before it decodes, so
	// a backslash before one cancels that escape.
	r, n := utf8.DecodeRuneInString(s[1:])
	switch {
	case r < 0x100:
		fmt.Fprintf(b, `\x%02x`, r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
	return -1, 1 + n, nil
}

func hexEscape(s string, digits int) (rune, int, error) {
	if len(s) < 2+digits {
		return 0, 0, failf(KindSyntax, "truncated \\%c escape", s[1])
	}
	v, err := strconv.ParseUint(s[2:2+digits], 16, 32)
	if err != nil || v > utf8.MaxRune {
		return 0, 0, failf(KindSyntax, "bad \\%c escape", s[1])
	}
	return rune(v), 2 + digits, nil
}
