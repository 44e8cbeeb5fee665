package toolcall

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/heftai/heft/internal/layout"
)

// learnFlipped learns the notation of parameters whose value precedes their key:
//
//	NAME a TEXT b KEY c TEXT b KEY …
func (l *lesson) learnFlipped(text string, at span, one probeCall) bool {
	pieces, ok1 := cutAll(text[at.body:], "zqvalue", "zqa", "zqmore", "zqb")
	number, ok2 := l.flippedNumber(one)
	if !ok1 || !ok2 || pieces[1] != pieces[3] {
		return false
	}
	a, b, c, rest := pieces[0], pieces[1], pieces[2], pieces[4]
	t := &tags{flipped: true}
	if text, ok := strings.CutPrefix(b, `"`); ok && text == number[1] { // strings have quotes, as all values are JSON
		a, ok1 = strings.CutSuffix(a, `"`)
		c, ok2 = strings.CutSuffix(c, `"`)
		if b, t.json = text, true; !ok1 || !ok2 {
			return false
		}
	}
	if b != number[1] || c != number[0] || strings.TrimSpace(b) == "" {
		return false
	}
	opening := commonSuffix(a, c)
	closing := c[:len(c)-len(opening)]
	if closing == "" { // parameters are on lines of their own
		opening = strings.TrimLeft(opening, spaces)
		closing = c[:len(c)-len(opening)]
	}
	if !strings.HasPrefix(rest, closing) || closing == "" {
		return false // it only occurs between two parameters
	}
	t.open, t.key, t.close = strings.TrimSpace(opening), strings.TrimSpace(b), strings.TrimSpace(closing)
	if t.close == "" {
		t.close = closing[:1]
	}
	l.form.body, l.form.tags = bodyTags, t
	return l.fields(text, at, one, strings.TrimSpace(a[:len(a)-len(opening)]))
}

// flippedNumber returns the text before a number that is not the first value, and the text between
// it and its key.
func (l *lesson) flippedNumber(one probeCall) (around [2]string, ok bool) {
	one.arguments = `{"zqa": "zqvalue", "zqn": 70}`
	text, ok := l.answer("", "", one)
	if !ok {
		return around, false
	}
	pieces, ok := cutAll(text, "zqa", "70", "zqn")
	if !ok {
		return around, false
	}
	return [2]string{pieces[1], pieces[2]}, true
}

// flippedByte reads a byte of a value that precedes its key, or of the key. It writes nothing
// before the key is known.
func (r *tagReader) flippedByte(c byte, out []byte) ([]byte, verdict) {
	if len(r.word) == maxValue {
		return out, bad
	}
	r.word = append(r.word, c)
	all, ok := bytes.CutSuffix(r.word, []byte(r.tags.close))
	if !ok {
		return out, more
	}
	// The key is a name: no longer text that looks like one is searched for it.
	from := max(0, len(all)-maxName-len(r.tags.key))
	i := bytes.LastIndex(all[from:], []byte(r.tags.key))
	if i < 0 {
		return out, more
	}
	value, key := bytes.TrimSpace(all[:from+i]), string(bytes.TrimSpace(all[from+i+len(r.tags.key):]))
	if !isName(key) || !r.mayBeKey(key, true) || r.tags.json && !json.Valid(value) {
		return out, more // a part of the value
	}
	out = r.beginKey([]byte(key), out)
	for _, c := range value {
		out = r.addText(c, out)
	}
	out = r.endText(out)
	r.state, r.word = tagSeek, r.word[:0]
	return out, more
}

// flippedNotation is argumentNotation for values that precede their keys.
func (a *answers) flippedNotation(f *Family, kind layout.Kind, t argumentTexts) *Notation {
	first, second, quote := probeNames[0], probeNames[1], ""
	if kind == layout.Values {
		quote = `"`
	}
	one, ok1 := cutAll(t.one, first, quote+"zqvalue"+quote, "zqa")
	two, ok2 := cutAll(t.two, first, quote+"zqvalue"+quote, "zqa", quote+"zqmore"+quote, "zqb")
	number, ok3 := cutAll(t.number, first, "70", "zqn")
	empty, ok4 := cutAll(t.empty, first)
	if !(ok1 && ok2 && ok3 && ok4) || two[1] != one[1] || number[1] != one[1] || number[2] != one[2] {
		return nil
	}
	g := &Arguments{layout.Object{Kind: kind, Flipped: true, First: one[1], Equals: one[2], EqualsText: one[2], End: whole(commonPrefix(two[3], one[3]))}}
	g.Next = two[3][len(g.End):]
	after := one[3][len(g.End):]
	var ok bool
	if g.Empty, ok = strings.CutSuffix(empty[1], after); !ok {
		return nil
	}
	n := &Notation{Before: a.beforeCalls(f, one[0]), Arguments: g, After: strings.TrimRight(after, spaces)}
	calls, ok := cutAll(t.twoCalls, first, quote+"zqvalue"+quote, "zqa", second, quote+"zqvalue"+quote, "zqa")
	if ok && calls[4] == one[1] && calls[5] == one[2] {
		n.Between, _ = strings.CutPrefix(calls[3], g.End)
	}
	return a.checked(f, n)
}
