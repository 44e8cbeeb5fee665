package jinja

import (
	"math/big"
	"strconv"
	"strings"
)

// number reads an int or float literal. Digits may be separated by single underscores. Ints may be
// binary, octal or hexadecimal. A number after a dot (x.0.1) is never a float.
func (lx *lexer) number(rest string) error {
	if n := floatLen(rest); n > 0 && (lx.pos == 0 || lx.src[lx.pos-1] != '.') {
		f, _ := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64)
		lx.add(tokFloat, rest[:n], f)
		lx.advance(n)
		return nil
	}
	n, base := 0, 10
	if len(rest) > 2 && rest[0] == '0' {
		switch rest[1] | 0x20 {
		case 'b':
			base = 2
		case 'o':
			base = 8
		case 'x':
			base = 16
		}
	}
	switch {
	case base != 10:
		n = 2 + digitsLen(rest[2:], base, true)
		if n == 2 {
			n, base = 1, 10
		}
	case rest[0] == '0':
		for n = 1; strings.HasPrefix(rest[n:], "0") || strings.HasPrefix(rest[n:], "_0"); n++ {
			if rest[n] == '_' {
				n++
			}
		}
	default:
		n = digitsLen(rest, 10, false)
	}
	digits := strings.ReplaceAll(rest[:n], "_", "")
	if base != 10 {
		digits = digits[2:]
	}
	if len(digits) > 4300 {
		return lx.fail("an integer of %d digits", len(digits))
	}
	lx.add(tokInt, rest[:n], parseInt(digits, base))
	lx.advance(n)
	return nil
}

// parseInt reads digits that are known to be of the base.
func parseInt(digits string, base int) Value {
	if i, err := strconv.ParseInt(digits, base, 64); err == nil {
		return i
	}
	n, _ := new(big.Int).SetString(digits, base)
	return n
}

// digitsLen returns the length of digits with single underscores between them, or
// also before the first if lead.
func digitsLen(s string, base int, lead bool) int {
	isDigit := func(i int) bool {
		return i < len(s) && strings.IndexByte("0123456789abcdefABCDEF"[:digitChars(base)], s[i]) >= 0
	}
	n := 0
	for {
		switch {
		case isDigit(n):
			n++
		case n < len(s) && s[n] == '_' && (n > 0 || lead) && isDigit(n+1):
			n += 2
		default:
			return n
		}
	}
}

// digitChars returns how many of 0-9a-fA-F are digits of the base.
func digitChars(base int) int {
	if base == 16 {
		return 22
	}
	return base
}

// floatLen returns the length of a float literal at the start of s, 0 if none is.
func floatLen(s string) int {
	n := digitsLen(s, 10, false)
	if n == 0 {
		return 0
	}
	isFloat := false
	if n < len(s) && s[n] == '.' {
		if d := digitsLen(s[n+1:], 10, false); d > 0 {
			n += 1 + d
			isFloat = true
		}
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if d := digitsLen(s[e:], 10, false); d > 0 {
			return e + d
		}
	}
	if !isFloat {
		return 0
	}
	return n
}
