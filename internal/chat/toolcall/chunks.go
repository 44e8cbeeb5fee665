package toolcall

import (
	"regexp"
	"strings"
)

// chunk matches the pieces of a template's markup that are compared as a whole: tags, code fences,
// words, and otherwise single characters.
var chunk = regexp.MustCompile("(?s)^(?:<[^<>\\s][^<>\n]{0,80}>|\\[/?[A-Z][A-Z_ ]*\\]|```(?:json)?|[\\pL\\pN_]+|.)")

// tag finds what looks like a marker.
var tag = regexp.MustCompile(`<[^<>\s][^<>\n]{0,80}>|\[/?[A-Z][A-Z_ ]*\]`)

// chunks parts a text.
func chunks(s string) []string {
	var out []string
	for s != "" {
		n := max(len(chunk.FindString(s)), 1)
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// commonPrefix is the longest beginning of whole chunks that a and b share.
func commonPrefix(a, b string) string {
	x, y := chunks(a), chunks(b)
	n := 0
	for i := 0; i < min(len(x), len(y)) && x[i] == y[i]; i++ {
		n += len(x[i])
	}
	return a[:n]
}

// commonSuffix is the longest end of whole chunks that a and b share.
func commonSuffix(a, b string) string {
	x, y := chunks(a), chunks(b)
	n := 0
	for i := 1; i <= min(len(x), len(y)) && x[len(x)-i] == y[len(y)-i]; i++ {
		n += len(x[len(x)-i])
	}
	return a[len(a)-n:]
}

// cutSuffixTrimmed removes end from s, white space around it aside.
func cutSuffixTrimmed(s, end string) (string, bool) {
	s = strings.TrimSpace(s)
	rest, ok := strings.CutSuffix(s, end)
	return strings.TrimSpace(rest), ok
}
