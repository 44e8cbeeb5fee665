package jinja

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The patterns by which urlize finds addresses. Go's regexps run in linear time, so hostile
// text costs no more than its length.
var (
	webAddress = regexp.MustCompile(`(?i)^(?:` +
		`(?:https?://|www\.)(?:[\p{L}\p{N}_%-]+\.)*(?:[a-z]{2,63}|xn--[\p{L}\p{N}_%]{2,59})` +
		`|(?:[\p{L}\p{N}_%-]{2,63}\.)+(?:com|net|int|edu|gov|org|info|mil)` +
		`|https?://(?:\d{1,3}(?:\.\d{1,3}){3}|\[(?:[\da-f]{0,4}:){2}(?:[\da-f]{0,4}:?){1,6}\])` +
		`)(?::\d{1,5})?(?:[/?#]\S*)?$`)
	mailAddress = regexp.MustCompile(`^\S+@[\p{L}\p{N}_][\p{L}\p{N}_.-]*\.[\p{L}\p{N}_]+$`)
	uriScheme   = regexp.MustCompile(`^[\p{L}\p{N}_.+-]{2,}:/{0,2}$`)
	openings    = regexp.MustCompile(`^(?:[(<]|&lt;)+`)
	closings    = regexp.MustCompile(`(?:[)>.,\n]|&gt;)+$`)
)

// linker is urlize with its options.
type linker struct {
	attrs   string // rel and target
	limit   int64  // of shown characters, negative for none
	schemes []string
}

// filterURLize makes links of the web and mail addresses in a text.
func filterURLize(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "trim_url_limit", "nofollow", "target", "rel", "extra_schemes")
	if err != nil {
		return nil, err
	}
	for i := range a {
		if a[i] == nil {
			a[i] = missing
		}
	}
	l := linker{}
	if l.limit, err = intArg(a[0], -1); err != nil {
		return nil, err
	}
	rel, err := textArg(a[3], "")
	if err != nil {
		return nil, err
	}
	rels := append(fields(rel, -1), "noopener")
	if flag(a[1]) {
		rels = append(rels, "nofollow")
	}
	slices.Sort(rels)
	l.attrs = ` rel="` + escapeHTML(strings.Join(slices.Compact(rels), " ")) + `"`
	if a[2] != missing {
		target, err := textArg(a[2], "")
		if err != nil {
			return nil, err
		}
		if target != "" {
			l.attrs += ` target="` + escapeHTML(target) + `"`
		}
	}
	if a[4] != missing {
		if l.schemes, err = schemes(st, a[4]); err != nil {
			return nil, err
		}
	}
	s, err := str(st, v)
	if err != nil {
		return nil, err
	}
	if _, isMarkup := v.(markup); !isMarkup {
		s = escapeHTML(s)
	}
	if err := st.grow(8 * len(s)); err != nil {
		return nil, err
	}
	out := l.text(s)
	return st.rendered(out), st.grow(len(out))
}

func schemes(st *state, v Value) ([]string, error) {
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(items))
	for i, item := range items {
		if out[i], err = textArg(item, ""); err != nil {
			return nil, err
		}
		if !uriScheme.MatchString(out[i]) {
			return nil, failf(KindRuntime, "%s is not a valid URI scheme prefix.", quote(out[i]))
		}
	}
	return out, nil
}

// text links the words of s and keeps the white space between them.
func (l *linker) text(s string) string {
	var b strings.Builder
	for s != "" {
		word := strings.IndexFunc(s, func(r rune) bool { return !IsSpace(r) })
		if word < 0 {
			break
		}
		b.WriteString(s[:word])
		s = s[word:]
		end := strings.IndexFunc(s, IsSpace)
		if end < 0 {
			end = len(s)
		}
		b.WriteString(l.word(s[:end]))
		s = s[end:]
	}
	return b.String() + s
}

// word links one word; brackets and punctuation around an address stay outside,
// unless they close a bracket of the address.
func (l *linker) word(s string) string {
	head := openings.FindString(s)
	middle := s[len(head):]
	tail := closings.FindString(middle)
	middle = middle[:len(middle)-len(tail)]
	for _, pair := range [][2]string{{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}} {
		opened := strings.Count(middle, pair[0])
		if opened <= strings.Count(middle, pair[1]) {
			continue
		}
		end := 0
		for range min(opened, strings.Count(tail, pair[1])) {
			end += strings.Index(tail[end:], pair[1]) + len(pair[1])
		}
		middle, tail = middle+tail[:end], tail[end:]
	}
	return head + l.link(middle) + tail
}

func (l *linker) link(s string) string {
	switch {
	case webAddress.MatchString(s):
		href := s
		if !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
			href = "https://" + s
		}
		shown := s
		if n := utf8.RuneCountInString(s); l.limit >= 0 && int64(n) > l.limit {
			shown = s[:runeOffset(s, int(l.limit), n)] + "..."
		}
		return `<a href="` + href + `"` + l.attrs + `>` + shown + `</a>`
	case strings.HasPrefix(s, "mailto:") && mailAddress.MatchString(s[len("mailto:"):]):
		return `<a href="` + s + `">` + s[len("mailto:"):] + `</a>`
	case !strings.HasPrefix(s, "www.") && !strings.HasPrefix(s, "@") && !strings.Contains(s, ":") && mailAddress.MatchString(s):
		return `<a href="mailto:` + s + `">` + s + `</a>`
	}
	for _, scheme := range l.schemes {
		if s != scheme && strings.HasPrefix(s, scheme) {
			return `<a href="` + s + `"` + l.attrs + `>` + s + `</a>`
		}
	}
	return s
}
