package toolcall

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/jsonscan"
)

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// unfinishedRune counts the bytes of an incomplete character at the end of text.
func unfinishedRune(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// isTokenByte reports whether c occurs in numbers and in words like True.
func isTokenByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '+' || c == '.' || c == '_'
}

// appendEscaped appends a byte of a JSON string.
func appendEscaped(out []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(out, '\\', c)
	case c >= 0x20:
		return append(out, c)
	case c == '\n':
		return append(out, `\n`...)
	case c == '\t':
		return append(out, `\t`...)
	case c == '\r':
		return append(out, `\r`...)
	}
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}

func (v *value) stringByte(c byte, out []byte) ([]byte, verdict) {
	switch {
	case v.quote == 0:
		return v.quotedByte(c, out)
	case c == v.quote && v.flavor == pythonFlavor && len(v.stack) > 0:
		v.state, v.word = atQuote, append(v.word[:0], c)
		return out, more
	case c == v.quote:
		return v.endString(out)
	case c == '\\':
		v.state = inEscape
		if v.flavor == jsonFlavor {
			out = append(out, c)
		}
		return out, more
	}
	return appendEscaped(out, c), more
}

func (v *value) endString(out []byte) ([]byte, verdict) {
	out = append(out, '"')
	if v.isKey {
		v.isKey, v.state = false, atColon
		return out, more
	}
	return v.ended(out)
}

// afterQuote reads a byte after a quote of a Python string. The quote ends the string if a text
// follows that must follow a string. Otherwise it is a part of the string: some templates, and the
// models that were trained with them, do not escape quotes.
func (v *value) afterQuote(c byte, out []byte) ([]byte, verdict) {
	if isSpace(c) && len(v.word) < maxToken {
		v.word = append(v.word, c)
		return out, more
	}
	followers := ",)]}"
	if v.isKey {
		followers = ":"
	}
	v.state = inString
	if strings.IndexByte(followers, c) >= 0 {
		v.word = v.word[:0]
		out, _ = v.endString(out)
		return v.structure(c, out)
	}
	for _, b := range v.word {
		out = appendEscaped(out, b)
	}
	v.word = v.word[:0]
	return v.stringByte(c, out)
}

// quotedByte reads a byte of a string that ends with v.bare. v.word holds a possible start of the
// quote.
func (v *value) quotedByte(c byte, out []byte) ([]byte, verdict) {
	v.word = append(v.word, c)
	for len(v.word) > 0 {
		if string(v.word) == v.bare {
			v.word = v.word[:0]
			return v.endString(out)
		}
		if strings.HasPrefix(v.bare, string(v.word)) {
			break
		}
		out = appendEscaped(out, v.word[0])
		v.word = append(v.word[:0], v.word[1:]...)
	}
	return out, more
}

func (v *value) escapeByte(c byte, out []byte) ([]byte, verdict) {
	v.state = inString
	if v.flavor == jsonFlavor {
		switch c {
		case 'u':
			v.state, v.hex = inHex, 4
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		default:
			v.state = inEscape
			return out, bad
		}
		return append(out, c), more
	}
	switch c {
	case 'n', 't', 'r', 'b', 'f', '"', '\\':
		return append(out, '\\', c), more
	case '\'':
		return append(out, c), more
	case '\n':
		return out, more
	case 'a':
		return append(out, `\u0007`...), more
	case 'v':
		return append(out, `\u000b`...), more
	case '0':
		return append(out, `\u0000`...), more
	case 'x', 'u', 'U':
		v.state, v.hex = inHex, map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		v.word = v.word[:0]
		return out, more
	}
	// Python keeps the backslash of an escape it does not know.
	return appendEscaped(append(out, `\\`...), c), more
}

func (v *value) hexByte(c byte, out []byte) ([]byte, verdict) {
	if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
		return out, bad
	}
	v.hex--
	if v.flavor == jsonFlavor {
		if v.hex == 0 {
			v.state = inString
		}
		return append(out, c), more
	}
	v.word = append(v.word, c)
	if v.hex > 0 {
		return out, more
	}
	n, _ := strconv.ParseUint(string(v.word), 16, 32)
	v.state = inString
	switch {
	case n < 0x80:
		out = appendEscaped(out, byte(n))
	case n >= 0xd800 && n < 0xe000: // half of a pair: JSON's escape is as able
		out = append(append(out, '\\', 'u'), v.word...)
	case n > utf8.MaxRune:
		return out, bad
	default:
		out = utf8.AppendRune(out, rune(n))
	}
	v.word = v.word[:0]
	return out, more
}

// endToken writes a number or word that has ended.
func (v *value) endToken(out []byte) ([]byte, bool) {
	word := string(v.word)
	literal := word == "true" || word == "false" || word == "null"
	if v.flavor == jsonFlavor {
		if !literal && !isNumber(word) {
			return out, false
		}
		v.word = v.word[:0]
		out, _ = v.ended(out)
		return out, true
	}
	switch {
	case literal || isNumber(word):
		out = append(out, word...)
	case word == "True":
		out = append(out, "true"...)
	case word == "False":
		out = append(out, "false"...)
	case word == "None":
		out = append(out, "null"...)
	default:
		n, ok := pythonNumber(word)
		if !ok {
			return out, false
		}
		out = append(out, n...)
	}
	v.word = v.word[:0]
	out, _ = v.ended(out)
	return out, true
}

// isNumber reports whether s is a number in JSON.
func isNumber(s string) bool {
	end, _, fault := jsonscan.Number(s, 0)
	return fault == jsonscan.None && end == len(s)
}

// pythonNumber converts a number that is valid in Python but not in JSON (1_000, .5, 2.) to JSON.
func pythonNumber(s string) (string, bool) {
	sign := ""
	if s[0] == '-' || s[0] == '+' {
		sign, s = strings.TrimPrefix(s[:1], "+"), s[1:]
	}
	s = strings.ReplaceAll(s, "_", "")
	if strings.HasPrefix(s, ".") {
		s = "0" + s
	}
	s = strings.Replace(s, ".e", ".0e", 1)
	if strings.HasSuffix(s, ".") {
		s += "0"
	}
	return sign + s, isNumber(sign + s)
}
