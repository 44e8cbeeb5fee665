package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Text helpers with Python's meaning of case, lines and white space.

// textContains returns `part in s`, with its work counted.
func textContains(st *state, s, part string) (bool, error) {
	return strings.Contains(s, part), st.work((len(s) + len(part)) / 16)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// upper and lower map case in full, as Unicode's special casing says: one character
// may become several, and the form of a sigma depends on its neighbours.
func upper(s string) string {
	if strings.IndexFunc(s, specialUpper) < 0 {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if !strings.ContainsAny(s, "\u0130\u03a3") {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func titleRune(r rune) string {
	if !specialUpper(r) {
		return string(unicode.ToTitle(r))
	}
	return cases.Title(language.Und).String(string(r))
}

// specialUpper reports whether r may become more than one character in upper or
// title case: sharp s, ligatures, Greek with iota subscript and a few others.
func specialUpper(r rune) bool {
	return r >= 0xdf && (r == 0xdf || r == 0x149 || r == 0x1f0 || r == 0x390 || r == 0x3b0 || r == 0x587 ||
		r >= 0x1e96 && r <= 0x1e9a || r >= 0x1f50 && r <= 0x1ffc || r >= 0xfb00 && r <= 0xfb17)
}

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return titleRune(r) + lower(s[n:])
}

// title returns str.title: letters after a non-letter become title case.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for _, r := range s {
		switch {
		case !isCased(r):
			b.WriteRune(r)
			inWord = false
			continue
		case inWord:
			b.WriteString(lower(string(r)))
		default:
			b.WriteString(titleRune(r))
		}
		inWord = true
	}
	return b.String()
}

func isCased(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) }

func swapCase(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsUpper(r):
			b.WriteString(lower(string(r)))
		case unicode.IsLower(r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// splitLines cuts s at every line boundary Python knows.
func splitLines(s string, keepEnds bool) []string {
	var lines []string
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isLineEnd(r) {
			i += n
			continue
		}
		end := i + n
		if r == '\r' && end < len(s) && s[end] == '\n' {
			end++
		}
		if keepEnds {
			lines = append(lines, s[start:end])
		} else {
			lines = append(lines, s[start:i])
		}
		start, i = end, end
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

func isLineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// fields splits s at runs of white space, at most limit times (-1: no limit).
func fields(s string, limit int) []string {
	var out []string
	s = strings.TrimLeftFunc(s, IsSpace)
	for s != "" {
		end := strings.IndexFunc(s, IsSpace)
		if end < 0 {
			return append(out, s)
		}
		if limit == 0 {
			return append(out, s)
		}
		out = append(out, s[:end])
		s = strings.TrimLeftFunc(s[end:], IsSpace)
		limit--
	}
	return out
}

// fieldsFromEnd returns fields, counted from the right.
func fieldsFromEnd(s string, limit int) []string {
	var out []string
	s = strings.TrimRightFunc(s, IsSpace)
	for s != "" {
		i := strings.LastIndexFunc(s, IsSpace)
		if i < 0 || limit == 0 {
			out = append(out, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		out = append(out, s[i+n:])
		s = strings.TrimRightFunc(s[:i], IsSpace)
		limit--
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// splitFromEnd splits s at sep, at most limit times from the right (-1: all).
func splitFromEnd(s, sep string, limit int) []string {
	parts := strings.Split(s, sep)
	if limit < 0 || len(parts) <= limit+1 {
		return parts
	}
	head := strings.Join(parts[:len(parts)-limit], sep)
	return append([]string{head}, parts[len(parts)-limit:]...)
}

// sides are the ends of a text.
type sides uint8

const (
	leftSide sides = 1 << iota
	rightSide
	bothSides = leftSide | rightSide
)

// pad fills s with fill on some sides, up to width characters.
func pad(st *state, s, fill string, width int64, on sides) (string, error) {
	n := width - int64(utf8.RuneCountInString(s))
	if n <= 0 {
		return s, nil
	}
	if n > int64(st.limits.Output) {
		n = int64(st.limits.Output)/int64(len(fill)) + 1
	}
	if err := st.grow(len(s) + int(n)*len(fill)); err != nil {
		return "", err
	}
	before := int64(0)
	switch on {
	case bothSides: // the odd one goes left if the width is odd
		before = n/2 + n&width&1
	case leftSide:
		before = n
	}
	return strings.Repeat(fill, int(before)) + s + strings.Repeat(fill, int(n-before)), nil
}

func expandTabs(st *state, s string, size int64) (string, error) {
	size = min(size, 1<<16)
	if err := st.grow(len(s) + strings.Count(s, "\t")*int(max(size, 0))); err != nil {
		return "", err
	}
	var b strings.Builder
	column := int64(0)
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				b.WriteString(strings.Repeat(" ", int(n)))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		b.WriteRune(r)
		column++
	}
	return b.String(), nil
}

// escapeHTML returns the result of the escape filter for plain text.
func escapeHTML(s string) string {
	return htmlEscaper.Replace(s)
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// textClass returns the predicate of an is... method: whether s has a character, all of
// them pass.
func textClass(name string) func(s string) bool {
	all := func(pass func(r rune) bool) func(string) bool {
		return func(s string) bool {
			return s != "" && strings.IndexFunc(s, func(r rune) bool { return !pass(r) }) < 0
		}
	}
	switch name {
	case "isalpha":
		return all(unicode.IsLetter)
	case "isalnum":
		return all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	case "isdecimal":
		return all(unicode.IsDigit)
	case "isdigit":
		return all(isDigit)
	case "isnumeric":
		return all(unicode.IsNumber)
	case "isspace":
		return all(IsSpace)
	case "isascii":
		return isASCII
	case "isprintable":
		return func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return !printable(r) }) < 0 }
	case "isidentifier":
		return func(s string) bool {
			return s != "" && wordLen(s) == len(s) && !unicode.IsDigit([]rune(s)[0])
		}
	case "islower":
		return func(s string) bool { return hasCase(s, unicode.IsLower) }
	case "isupper":
		return func(s string) bool { return hasCase(s, unicode.IsUpper) }
	case "istitle":
		return isTitle
	}
	return nil
}

// isDigit is str.isdigit for one character: decimal digits and the superscript
// and enclosed ones.
func isDigit(r rune) bool {
	return unicode.IsDigit(r) || r == 0xb2 || r == 0xb3 || r == 0xb9 || r == 0x2070 || r >= 0x2074 && r <= 0x2079 ||
		r >= 0x2080 && r <= 0x2089 || r >= 0x2460 && r <= 0x2468 || r >= 0x2474 && r <= 0x247c || r >= 0x2488 && r <= 0x2490
}

// hasCase reports whether s has cased characters and all of them are of one case.
func hasCase(s string, is func(rune) bool) bool {
	found := false
	for _, r := range s {
		if isCased(r) {
			if !is(r) {
				return false
			}
			found = true
		}
	}
	return found
}

func isTitle(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			found, inWord = true, true
		case unicode.IsLower(r):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return found
}
