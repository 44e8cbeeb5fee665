package toolcall

import (
	"regexp"
	"strings"
)

// betweenTags finds where one tag ends and the next begins.
var betweenTags = regexp.MustCompile(`^(.*?>)\s*(<.*)$`)

// tagged reports whether the arguments are keys and texts that a [tagReader] reads.
func (l *lesson) tagged() bool { return l.style == tagStyle || l.style == plainStyle }

// learnTags finds how parameters are written that stand between tags:
//
//	NAME a KEY b TEXT c KEY b TEXT …
func (l *lesson) learnTags(text string, at span, one probeCall) bool {
	rest := text[at.body:]
	a, rest, ok1 := strings.Cut(rest, "zqa")
	b, rest, ok2 := strings.Cut(rest, "zqvalue")
	c, rest, ok3 := strings.Cut(rest, "zqb")
	again, _, ok4 := strings.Cut(rest, "zqmore")
	if !(ok1 && ok2 && ok3 && ok4) || again != b {
		return false
	}
	if before, ok := strings.CutSuffix(b, cdataOpen); ok {
		b, c = before, strings.TrimPrefix(c, cdataClose)
	}
	opening := commonSuffix(a, c)
	if strings.HasPrefix(strings.TrimSpace(c), "</zqa>") && strings.HasSuffix(a, "<") && strings.TrimSpace(b) == ">" {
		l.form.body, l.form.tags = bodyTags, &tags{named: true}
		return l.fields(text, at, one, strings.TrimSpace(strings.TrimSuffix(a, "<")))
	}
	opening, row := lastLine(opening, c)
	t := &tags{open: strings.TrimSpace(opening), close: strings.TrimSpace(c[:len(c)-len(opening)])}
	if t.open == "" || t.close == "" {
		return l.learnAssignments(text, at, one, [3]string{a, b, c})
	}
	t.lines = strings.HasSuffix(b, "\n") && strings.HasPrefix(c, "\n")
	key := strings.TrimSpace(b)
	number, ok := l.beforeNumber(one)
	if !ok {
		number = b
	}
	switch n := strings.TrimSpace(strings.TrimSuffix(number, cdataOpen)); {
	case n == key:
	case strings.HasSuffix(key, `"`) && strings.TrimSpace(key[:len(key)-1]) == n: // a string has its quotes, as all values are JSON
		key, t.json = n, true
		t.close = strings.TrimSpace(strings.TrimPrefix(t.close, `"`))
		t.ended = t.close == ""
		if n == "" && t.ended && isSpace(b[0]) {
			key = b[:1]
		}
	default:
		shared := commonPrefix(key, n)
		if strings.TrimSpace(shared) == "" || len(shared) == len(key) || len(shared) == len(n) {
			return false
		}
		t.typed, t.value = true, []string{key[len(shared):], n[len(shared):]}
		key = strings.TrimSpace(shared)
	}
	if parts := betweenTags.FindStringSubmatch(key); parts != nil && !t.typed {
		key, t.value = parts[1], []string{parts[2]}
	}
	if row && !t.json && !t.typed {
		key, t.close = b, strings.TrimRight(c[:len(c)-len(opening)], spaces)
	}
	if t.key = key; key == "" {
		return false
	}
	if marked, ok := l.answer("", "", newProbeCall(0, `{"zqa": "<zq>&"}`)); ok {
		t.cdata = strings.Contains(marked, cdataOpen)
	}
	l.form.body, l.form.tags = bodyTags, t
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// lastLine is the opening of a parameter: the end of what stands before it, without the line that ends
// the name or a text. row reports whether that line ends like a row of a table. c stands between two
// parameters.
func lastLine(opening, c string) (line string, row bool) {
	isText := func(s string) bool { return strings.TrimSpace(s) != "" }
	if before, line, ok := strings.Cut(c, "\n"); ok && opening == c && isText(before) && isText(line) {
		opening = line // what ends a name ends a text, too
	}
	if before, line, ok := cutLast(opening, "\n"); ok && opening != c && isText(before) && isText(line) {
		return line, true
	}
	return opening, false
}

// learnAssignments finds how parameters are written whose values are JSON and have no other end:
//
//	NAME KEY="text" KEY=7 …
//
// parts stand before the first key, between it and its text, and before the second key.
func (l *lesson) learnAssignments(text string, at span, one probeCall, parts [3]string) bool {
	a, c := parts[0], parts[2]
	b, ok1 := strings.CutSuffix(parts[1], `"`)
	c, ok2 := strings.CutPrefix(c, `"`)
	number, ok3 := l.beforeNumber(one)
	if !(ok1 && ok2 && ok3) || number != b || strings.TrimSpace(b) == "" || a == "" || c == "" {
		return false // the name, a key or a value runs into what follows
	}
	opening := commonSuffix(a, c)
	l.form.body, l.form.tags = bodyTags, &tags{
		open: strings.TrimSpace(opening), key: strings.TrimSpace(b), close: strings.TrimSpace(c[:len(c)-len(opening)]), json: true, ended: true,
	}
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// learnPlain finds how parameters are written whose values have no quotes:
//
//	NAME a KEY b TEXT c KEY b TEXT …
//
// Nothing ends a text but c with another key, or the end of the call.
func (l *lesson) learnPlain(text string, at span, one probeCall) bool {
	pieces, ok := cutAll(text[at.body:], "zqa", "zqvalue", "zqb", "zqmore")
	if !ok || pieces[1] != pieces[3] {
		return false
	}
	a, b, c, rest := pieces[0], pieces[1], pieces[2], pieces[4]
	key := strings.TrimRight(b, " ")
	if number, ok := l.beforeNumber(one); !ok || number != b || strings.TrimSpace(key) == "" || a == "" || c == "" {
		return false // the name, a key or a value runs into what follows, or a type is shown
	}
	opening := commonSuffix(a, c)
	l.form.body, l.form.tags = bodyTags, &tags{
		open: strings.TrimSpace(opening), key: key,
		plain: &plainValues{next: c, last: rest[:len(rest)-len(strings.TrimLeft(rest, spaces))], gap: len(b) - len(key)},
	}
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// beforeNumber is what stands between the key and the text of a number.
func (l *lesson) beforeNumber(one probeCall) (string, bool) {
	one.arguments = `{"zqa": "zqvalue", "zqn": 70}`
	text, ok := l.answer("", "", one)
	if !ok {
		return "", false
	}
	_, text, ok = strings.Cut(text, "zqn")
	b, _, found := strings.Cut(text, "70")
	return b, ok && found
}
