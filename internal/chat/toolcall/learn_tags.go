package toolcall

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/layout"
)

// numberAtEnd matches a number before some punctuation at the end of a text.
var numberAtEnd = regexp.MustCompile(`(\d+)([^\w\s]{1,3}\s*)$`)

// betweenTags matches the end of one tag and the start of the next.
var betweenTags = regexp.MustCompile(`^(.*?>)\s*(<.*)$`)

// tagged reports whether the arguments are keys and texts that a [tagReader] reads.
func (l *lesson) tagged() bool {
	return l.style == tagStyle || l.style == plainStyle || l.style == closedStyle || l.style == flippedStyle
}

// learnTags learns the notation of parameters between tags:
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
	if number, ok := l.beforeNumber(one); strings.HasSuffix(b, cdataOpen) && !(ok && strings.HasSuffix(number, cdataOpen)) {
		b, c = strings.TrimSuffix(b, cdataOpen), strings.TrimPrefix(c, cdataClose)
	}
	if strings.Contains(c, "zqa") {
		return l.learnElements(text, at, one, [3]string{a, b, c})
	}
	opening := commonSuffix(a, c)
	opening, row := lastLine(opening, c)
	t := &tags{open: strings.TrimSpace(opening), close: strings.TrimSpace(c[:len(c)-len(opening)])}
	if t.open == "" && !l.closes(text, at, one, t.close) || t.close == "" {
		return l.learnAssignments(text, at, one, [3]string{a, b, c})
	}
	t.lines = strings.HasSuffix(b, "\n") && strings.HasPrefix(c, "\n")
	key, ok := l.keyEnd(t, one, b)
	if !ok {
		return false
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
		t.cdata = strings.Contains(marked, cdataOpen) && !strings.HasSuffix(t.key, cdataOpen)
	}
	l.form.body, l.form.tags = bodyTags, t
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// keyEnd returns the text that ends a key. b is the text between the key and its value. keyEnd sets
// the fields of t for the text between that end and the value, and whether values are JSON.
func (l *lesson) keyEnd(t *tags, one probeCall, b string) (key string, ok bool) {
	number, ok := l.beforeNumber(one)
	if !ok {
		number = b
	}
	if !strings.HasSuffix(b, cdataOpen) {
		number = strings.TrimSuffix(number, cdataOpen)
	}
	key = strings.TrimSpace(b)
	switch n := strings.TrimSpace(number); {
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
			return "", false
		}
		t.typed, t.value = true, []string{key[len(shared):], n[len(shared):]}
		key = strings.TrimSpace(shared)
	}
	return key, true
}

// closes reports whether end also ends the last parameter of a call, and not only parameters before
// others.
func (l *lesson) closes(text string, at span, one probeCall, end string) bool {
	keys := probeKeys(one.arguments)
	_, rest, ok := strings.Cut(text[at.body:], keys[len(keys)-1].value)
	return ok && end != "" && strings.HasPrefix(strings.TrimSpace(rest), end)
}

// learnElements learns the notation of parameters that end with their key: <KEY>TEXT</KEY>. parts
// are the texts before the first key, between it and its text, and before the second key.
func (l *lesson) learnElements(text string, at span, one probeCall, parts [3]string) bool {
	a, b, c := parts[0], parts[1], parts[2]
	before, c, _ := strings.Cut(c, "zqa")
	_, last, ok1 := strings.Cut(text[at.body:], "zqmore")
	last, ok2 := strings.CutPrefix(last, before+"zqb")
	number, ok3 := l.beforeNumber(one)
	key, types, ok4 := typedKey(b, number)
	if !(ok1 && ok2 && ok3 && ok4) || key == "" || strings.TrimSpace(before) == "" {
		return false
	}
	end := strings.TrimSpace(whole(commonPrefix(c, last))) // of the closing tag
	opening := strings.TrimSpace(c[strings.Index(c, end)+len(end):])
	head, ok := strings.CutSuffix(a, opening)
	if end == "" || opening == "" || !ok {
		return false
	}
	l.form.body, l.form.tags = bodyTags, &tags{
		named: true, open: opening, key: key, close: strings.TrimSpace(before) + layout.KeyMark + end,
		lines: strings.HasSuffix(b, "\n") && strings.HasPrefix(before, "\n"), typed: types != nil, value: types,
	}
	return l.fields(text, at, one, strings.TrimSpace(head))
}

// typedKey returns the text that ends a key. The text before a string is b and the text before a
// number is number. types are the parts that differ, or nil if there are none.
func typedKey(b, number string) (key string, types []string, ok bool) {
	if strings.TrimSpace(b) == strings.TrimSpace(number) {
		return strings.TrimSpace(b), nil, true
	}
	shared := commonStart(b, number)
	if strings.TrimSpace(shared) == "" || len(shared) == min(len(b), len(number)) {
		return "", nil, false
	}
	return strings.TrimRight(shared, " "), []string{strings.TrimSpace(b[len(shared):]), strings.TrimSpace(number[len(shared):])}, true
}

// whole returns text without an incomplete tag at its end.
func whole(text string) string {
	if i := strings.LastIndexAny(text, "<[{("); i >= 0 && !strings.ContainsAny(text[i:], ">]})") {
		return text[:i]
	}
	return text
}

// lastLine returns the opening of a parameter: the end of the text before it, without the line that
// ends the name or a text. row reports whether that line ends like a row of a table. c is the text
// between two parameters.
func lastLine(opening, c string) (line string, row bool) {
	isText := func(s string) bool { return strings.TrimSpace(s) != "" }
	if before, line, ok := strings.Cut(c, "\n"); ok && opening == c && isText(before) && isText(line) {
		opening = line // the end of a name also ends a text
	}
	if before, line, ok := cutLast(opening, "\n"); ok && opening != c && isText(before) && isText(line) {
		return line, true
	}
	return opening, false
}

// learnAssignments learns the notation of parameters whose values are JSON without a closing text:
//
//	NAME KEY="text" KEY=7 …
//
// parts are the texts before the first key, between it and its text, and before the second key.
func (l *lesson) learnAssignments(text string, at span, one probeCall, parts [3]string) bool {
	a, c := parts[0], parts[2]
	b, ok1 := strings.CutSuffix(parts[1], `"`)
	c, ok2 := strings.CutPrefix(c, `"`)
	number, ok3 := l.beforeNumber(one)
	if !(ok1 && ok2 && ok3) || number != b || strings.TrimSpace(b) == "" || a == "" || c == "" {
		return false // the name, a key or a value has no end
	}
	opening := commonSuffix(a, c)
	l.form.body, l.form.tags = bodyTags, &tags{
		open: strings.TrimSpace(opening), key: strings.TrimSpace(b), close: strings.TrimSpace(c[:len(c)-len(opening)]), json: true, ended: true,
	}
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// learnPlain learns the notation of parameters whose values have no quotes:
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
	t := &tags{key: strings.TrimRight(b, " ")}
	number, ok := l.beforeNumber(one)
	if shared := commonStart(b, number); ok && number != b && strings.TrimSpace(shared) != "" && len(shared) < min(len(b), len(number)) { // a type is shown
		t.key, t.typed, t.value = strings.TrimRight(shared, " "), true, []string{strings.TrimSpace(b[len(shared):]), strings.TrimSpace(number[len(shared):])}
		if b = b[len(shared):]; len(b)-len(t.value[0]) != len(number[len(shared):])-len(t.value[1]) {
			return false
		}
	} else if !ok || number != b {
		return false
	}
	if t.key == "" && b != "" {
		t.key = b[:1]
	}
	blank := strings.TrimSpace(t.key) == "" && !strings.Contains(t.key, "\n")
	if t.key == "" || blank && strings.TrimSpace(commonSuffix(a, c)) == "" || a == "" || c == "" {
		return false // the name, a key or a value has no end
	}
	if l.style == closedStyle {
		if t.close = strings.TrimRight(whole(commonStart(c, rest)), spaces); strings.TrimSpace(t.close) == "" || strings.TrimSpace(rest[len(t.close):]) == "" {
			return false
		}
	}
	if first, second := numberAtEnd.FindStringSubmatchIndex(a), numberAtEnd.FindStringSubmatchIndex(c); first != nil && second != nil &&
		a[first[4]:] == c[second[4]:] && a[first[2]:first[3]] != c[second[2]:second[3]] { // parameters are counted
		t.counted = strings.TrimSpace(a[first[4]:])
		a, c = a[:first[2]], c[:second[2]]
	}
	if len(c) < len(t.close) {
		return false
	}
	opening := commonSuffix(a, c[len(t.close):])
	t.open = strings.TrimSpace(opening)
	t.plain = &plainValues{next: c, last: rest[:len(rest)-len(strings.TrimLeft(rest, spaces))], gap: max(0, len(b)-max(len(strings.TrimRight(b, " ")), 1))}
	l.form.body, l.form.tags = bodyTags, t
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// beforeNumber returns the text between the key and the text of a number.
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

// commonStart returns the longest common prefix of a and b.
func commonStart(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return a[:n]
}
