package jsonschema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/layout"
)

// A Layout is a notation of objects that is not JSON. Nested values have the notation of the kind.
// A layout that writes strings unquoted does not distinguish a string from another value. If the
// property's schema allows another type besides strings, a string is therefore never written like a
// value of that type.
type Layout struct {
	layout.Object
	// Names are the property names that a reader of Plain values knows. If it is nil, the reader
	// takes any word for a name.
	Names []string
	// Marker returns a position that reads a text of the layout, which may contain special tokens.
	Marker func(text string, next grammar.Pos) grammar.Pos
}

// AppendLaidOut adds the objects that satisfy a schema to a grammar in the layout l, before next.
// Errors are of type *Error.
func AppendLaidOut(b *grammar.Builder, schema []byte, l *Layout, next grammar.Pos) (grammar.Pos, error) {
	return add(b, schema, true, l, next)
}

// kind returns the notation of nested values; 0 is JSON.
func (c *compiler) kind() layout.Kind {
	if c.layout == nil {
		return 0
	}
	return c.layout.Kind
}

// pythonWords maps JSON's words to Python's.
var pythonWords = map[string]string{"null": "None", "true": "True", "false": "False"}

// word returns the spelling of null, true or false.
func (c *compiler) word(json string) string {
	if c.kind() == layout.Python {
		return pythonWords[json]
	}
	return json
}

// text returns a position that reads a string, then next.
func (c *compiler) text(t *str, path string, next grammar.Pos) (grammar.Pos, error) {
	if c.kind() != layout.Bare {
		if at, ok := c.counted(t, next); ok {
			return at, nil
		}
		return c.eitherText(t, next, func() (*grammar.Terminal, error) { return c.strTerminal(t, path) },
			func() (grammar.Pos, error) { return c.largeText(t, next) })
	}
	quote := c.layout.Quote
	at, err := c.rawText(t, path, "text "+quote, func(d *dfa.DFA) (*dfa.DFA, error) { return c.raw(d, quote, quote) }, c.marked(quote, next))
	return c.marked(quote, at), err
}

// eitherText returns a position that reads a terminal, then next. If the automaton of a restricted
// string is large, it returns the position that language makes.
func (c *compiler) eitherText(t *str, next grammar.Pos, terminal func() (*grammar.Terminal, error), language func() (grammar.Pos, error)) (grammar.Pos, error) {
	if t.restricted() {
		term, err := cheaply(c, terminal)
		if err == nil {
			return c.b.Term(term, next), nil
		}
		if at, err := language(); err == nil {
			return at, nil
		}
	}
	term, err := terminal()
	if err != nil {
		return grammar.Fail, err
	}
	return c.b.Term(term, next), nil
}

// rawText returns a position that reads an unquoted string, then next.
func (c *compiler) rawText(t *str, path, name string, write func(*dfa.DFA) (*dfa.DFA, error), next grammar.Pos) (grammar.Pos, error) {
	return c.eitherText(t, next, func() (*grammar.Terminal, error) { return c.rawTerminal(t, path, name, write) },
		func() (grammar.Pos, error) { return c.unquotedText(t, write, next) })
}

// rawTerminal returns the terminal of unquoted strings. write makes their automaton from that of
// quoted strings. name identifies write for all grammars.
func (c *compiler) rawTerminal(t *str, path, name string, write func(*dfa.DFA) (*dfa.DFA, error)) (*grammar.Terminal, error) {
	open, whole := *t, *t
	for _, f := range t.formats {
		if n := formats[f.text].most; n > 0 {
			whole.max = both(whole.max, n)
		}
	}
	if t.texts == nil {
		open.min, open.max = 0, -1
	}
	term, err := c.b.Library().Shared(name+" "+open.key(), func() (*dfa.DFA, error) {
		d, err := c.strDFA(&open, path)
		if err != nil {
			return nil, err
		}
		return write(d)
	})
	if err != nil || open.min == whole.min && open.max == whole.max || term.DFA().IsEmpty() {
		return term, err
	}
	if counted, ok := term.CountedText(whole.min, whole.max); ok {
		return counted, nil
	}
	return c.b.Library().Shared(name+" "+whole.key(), func() (*dfa.DFA, error) {
		d, err := c.strDFA(&whole, path)
		if err != nil {
			return nil, err
		}
		return write(d)
	})
}

// spelled returns a position that reads the value of a JSON text in the layout.
func (c *compiler) spelled(v string, next grammar.Pos) (grammar.Pos, error) {
	switch {
	case v[0] == '"' && c.kind() == layout.Bare:
		var text string
		if err := json.Unmarshal([]byte(v), &text); err != nil {
			return grammar.Fail, err
		}
		return c.text(&str{texts: []string{text}, max: -1}, "", next)
	case v == "null" || v == "true" || v == "false":
		v = c.word(v)
	}
	return c.b.Literal(v, next), nil
}

// argument returns a position that reads the value of a property of the object with the layout, and
// the texts around it.
func (c *compiler) argument(name string, k conj, next grammar.Pos) (grammar.Pos, error) {
	l := c.layout
	s, err := c.normal(k)
	if err != nil {
		return grammar.Fail, err
	}
	stop, end := l.ends(name)
	next = l.Marker(end, next)
	if l.Flipped {
		next = l.Marker(l.Equals, c.b.Literal(name, next))
		l, stop, end = l.valueFirst()
	}
	if l.Kind != layout.Tags || l.JSONText {
		texts, values := &set{strings: s.strings}, *s
		values.strings = nil
		text, err1 := c.emit(texts, c.path(k), next)
		value, err2 := c.emit(&values, c.path(k), next)
		return c.b.Split(c.marked(l.EqualsText, text), c.marked(l.Equals, value)), firstError(err1, err2)
	}
	values := *s
	values.strings = nil
	if c.layout.scalars() && !c.structured(name) {
		values.arrays, values.objects = nil, nil
	}
	value, err := c.emit(&values, c.path(k), next)
	if err != nil {
		return grammar.Fail, err
	}
	alts := []grammar.Pos{c.marked(l.Equals, value)}
	for _, w := range []struct {
		word string
		may  bool
	}{{"null", s.null}, {"true", s.yes}, {"false", s.no}} {
		if w.may {
			alts = append(alts, c.marked(l.Equals, c.b.Literal(pythonWords[w.word], next)))
		}
	}
	for _, t := range s.strings {
		others := c.lookalikes(s, name)
		at, err := c.rawText(t, c.path(k), fmt.Sprintf("tags %d %t %q %q %q", others, l.CDATA, stop, end, l.plainKey()),
			func(d *dfa.DFA) (*dfa.DFA, error) { return c.tagText(d, others, stop, end) }, next)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, c.marked(l.EqualsText, at))
		if !l.CDATA {
			continue
		}
		const open, closing = "<![CDATA[", "]]>"
		at, err = c.rawText(t, c.path(k), fmt.Sprintf("cdata %q %q", stop, end),
			func(d *dfa.DFA) (*dfa.DFA, error) { return c.raw(d, closing+stop, closing+end) }, c.marked(closing, next))
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, c.marked(l.EqualsText+open, at))
	}
	return c.b.Split(alts...), nil
}

// valueFirst returns the layout of a value that precedes its key, the text that no string of it
// contains, and the text that ends it.
func (l *Layout) valueFirst() (value *Layout, stop, end string) {
	own := *l
	own.Equals, own.EqualsText = "", ""
	return &own, strings.TrimSpace(l.Equals), strings.TrimRight(l.Equals, " \t\r\n")
}

// marked returns a position that reads a marker before next, which may be Fail.
func (c *compiler) marked(text string, next grammar.Pos) grammar.Pos {
	if next == grammar.Fail {
		return next
	}
	return c.layout.Marker(text, next)
}

// tagText returns the strings of d in their form between tags, except those that are other values.
func (c *compiler) tagText(d *dfa.DFA, others types, stop, end string) (*dfa.DFA, error) {
	text, err := c.raw(d, stop, end)
	if err == nil && c.layout.plain() {
		text, err = c.plainText(text)
	}
	if err != nil {
		return nil, err
	}
	if others != 0 {
		minus, err := dfa.Compile(others.texts(), c.b.Budget)
		if err != nil {
			return nil, err
		}
		if text, err = dfa.Subtract(text, minus, c.b.Budget); err != nil {
			return nil, err
		}
	}
	if !c.layout.CDATA {
		return text, nil
	}
	minus, err := dfa.Compile(dfa.Concat(dfa.Literal("<![CDATA["), dfa.Star(dfa.Byte(0, 0xFF))), c.b.Budget)
	if err != nil {
		return nil, err
	}
	return dfa.Subtract(text, minus, c.b.Budget)
}

// rawState is a state of an automaton of quoted strings, and the length of the prefix of the stop
// that the text ends with.
type rawState struct{ q, n int32 }

// raw returns the strings of d without quotes and escapes. d is an automaton of quoted strings in
// their shortest spelling. Followed by end, the strings contain stop at its end and nowhere else.
func (c *compiler) raw(d *dfa.DFA, stop, end string) (*dfa.DFA, error) {
	step := func(s rawState, b byte) (rawState, bool) {
		n := matched(stop, s.n, b)
		if int(n) == len(stop) {
			return s, false
		}
		q := s.q
		for _, e := range []byte(jsontext.Escape(b)) {
			if q = d.Step(q, e); q == dfa.Dead {
				return s, false
			}
		}
		return rawState{q, n}, true
	}
	accepts := func(s rawState) bool {
		q := d.Step(s.q, '"')
		if q == dfa.Dead || !d.Accepts(q) {
			return false
		}
		n := s.n
		for i := range len(end) {
			if n = matched(stop, n, end[i]); int(n) == len(stop) {
				return i == len(end)-1
			}
		}
		return true
	}
	if d.IsEmpty() || d.Step(d.Start(), '"') == dfa.Dead {
		return dfa.Compile(dfa.None(), c.b.Budget)
	}
	return dfa.Build(rawState{q: d.Step(d.Start(), '"')}, allBytes, step, accepts, c.b.Budget)
}

// allBytes are the bytes of UTF-8.
var allBytes = func() string {
	var b [0xF5]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()

// matched returns the length of the prefix of stop that a text ends with after b, if it ended with
// n bytes of it.
func matched(stop string, n int32, b byte) int32 {
	for {
		if int(n) < len(stop) && stop[n] == b {
			return n + 1
		}
		if n == 0 {
			return 0
		}
		k := n - 1
		for k > 0 && stop[:k] != stop[n-k:n] {
			k--
		}
		n = k
	}
}

// without returns the strings of d, with their quotes, in which none of stops occurs.
func without(stops []string, d *dfa.DFA, budget *dfa.Budget) (*dfa.DFA, error) {
	for _, stop := range stops {
		var err error
		if d, err = withoutOne(stop, d, budget); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func withoutOne(stop string, d *dfa.DFA, budget *dfa.Budget) (*dfa.DFA, error) {
	step := func(s rawState, b byte) (rawState, bool) {
		s = rawState{d.Step(s.q, b), matched(stop, s.n, b)}
		return s, s.q != dfa.Dead && int(s.n) < len(stop)
	}
	if d.IsEmpty() {
		return d, nil
	}
	return dfa.Build(rawState{q: d.Start()}, allBytes, step, func(s rawState) bool { return d.Accepts(s.q) }, budget)
}

// names reports whether l can write the name of a property.
func (l *Layout) names(name string) bool {
	switch {
	case l.Kind != layout.Tags:
		return bareName(name, l.Kind)
	case l.Flipped:
		return isWord(name)
	case l.Named():
		return isWord(name) && name[0] != '/'
	case l.plain():
		return isWord(name) && (l.Names == nil || slices.Contains(l.Names, name)) && !strings.Contains(name, l.Plain.Key)
	}
	end := "\n"
	if marker := strings.TrimSpace(l.Equals); marker != "" {
		end = marker[:1]
	}
	return name != "" && len(name) <= maxBareName && strings.TrimSpace(name) == name && !strings.ContainsAny(name, "<>\"\n"+end)
}

// bareName reports whether a name can be a key without quotes.
func bareName(name string, kind layout.Kind) bool {
	if name == "" || len(name) > maxBareName || strings.TrimSpace(name) != name {
		return false
	}
	for i, r := range name {
		plain := r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
		switch {
		case plain:
		case kind == layout.Python || kind == layout.Values:
			if i == 0 || r != '-' && r != '.' {
				return false
			}
		case strings.ContainsRune("<>\"'`:,=(){}[]\\", r) || unicode.IsControl(r):
			return false
		}
	}
	return true
}

// maxBareName is the length of the longest key without quotes.
const maxBareName = 128

// bareNames are the names that a schema does not list, as keys without quotes.
func bareNames() *dfa.Expr {
	first := dfa.Alt(dfa.Byte('a', 'z'), dfa.Byte('A', 'Z'), dfa.Byte('_', '_'))
	return dfa.Concat(first, dfa.Repeat(dfa.Alt(first, dfa.Byte('0', '9')), 0, 63))
}
