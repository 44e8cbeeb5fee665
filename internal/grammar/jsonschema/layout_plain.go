package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/layout"
)

func (l *Layout) plain() bool { return l.Plain.Key != "" }

// listed reports whether only names in the schema can be written.
func (l *Layout) listed() bool { return l.Named() || l.Flipped || l.plain() && l.Names != nil }

// plainKey returns a key that identifies the Plain texts of a layout.
func (l *Layout) plainKey() string {
	if !l.plain() {
		return ""
	}
	return fmt.Sprintf("%+v %q", l.Plain, l.Names)
}

// neverText occurs in no text.
const neverText = "\xFF"

// ends returns the text that no string of a property contains, and the text that ends its value.
func (l *Layout) ends(name string) (stop, end string) {
	switch {
	case l.plain():
		return neverText, l.End
	case !l.Named():
		return l.Stop, l.End
	}
	return strings.ReplaceAll(l.Stop, layout.KeyMark, name), strings.ReplaceAll(l.End, layout.KeyMark, name)
}

// stops returns the texts that strings within other values must not contain.
func (l *Layout) stops() []string {
	switch {
	case l.plain():
		key := l.Plain.Key
		if strings.TrimSpace(key) == "" {
			key = l.Plain.Next
		}
		var stops []string
		if l.Plain.Close == "" {
			stops = slices.Clone(l.Plain.Ends)
		} else if strings.Trim(l.Plain.Close, `"`) != "" {
			stops = []string{l.Plain.Close}
		}
		if !strings.Contains(l.Plain.Next, "\n") { // otherwise no string of JSON contains it
			stops = append(stops, key)
		}
		return stops
	case l.Flipped && l.Kind == layout.Tags:
		return []string{strings.TrimSpace(l.Equals)}
	case !l.Named():
		return []string{l.Stop}
	}
	before, _, _ := strings.Cut(l.Stop, layout.KeyMark)
	return []string{before}
}

// scalars reports whether arrays and objects cannot be written, because their punctuation could end
// a value.
func (l *Layout) scalars() bool {
	structural := func(stop string) bool { return strings.Trim(stop, "{}[],:\" \t\r\n") == "" }
	if l.plain() {
		if l.Plain.Close != "" {
			return structural(l.Plain.Close)
		}
		return slices.ContainsFunc(slices.Concat(l.Plain.Ends, l.Plain.Lines), structural)
	}
	return structural(l.Stop)
}

// structured reports whether the reader of a property reads an object or a list up to its last
// bracket, because the property's schema excludes strings.
func (c *compiler) structured(name string) bool {
	root, _ := c.root.(*object)
	if root == nil {
		return false
	}
	properties, _ := root.values["properties"].(*object)
	if properties == nil {
		return false
	}
	o, _ := properties.values[name].(*object)
	if o == nil {
		return false
	}
	t, _ := o.get("type")
	list, ok := t.([]any)
	if !ok {
		list = []any{t}
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(v any) bool { return v == nil || v == "string" })
}

// plainText returns the texts that end where the reader of a plain value ends them.
func (c *compiler) plainText(text *dfa.DFA) (*dfa.DFA, error) {
	l, anything := c.layout, dfa.Star(dfa.Byte(0, 0xFF))
	blank := dfa.Alt(dfa.Byte(' ', ' '), dfa.Byte('\t', '\t'))
	space := dfa.Alt(blank, dfa.Byte('\n', '\n'), dfa.Byte('\r', '\r'))
	number := dfa.Empty()
	if l.Plain.Counted != "" {
		digit := dfa.Byte('0', '9')
		number = dfa.Concat(digit, dfa.Star(digit), dfa.Literal(l.Plain.Counted), dfa.Star(blank))
	}
	named := dfa.Concat(dfa.Literal(l.Plain.Next), dfa.Star(blank), number, l.words())
	ends, last := []*dfa.Expr{dfa.Concat(named, dfa.Literal(l.Plain.Key))}, []*dfa.Expr{space}
	for _, begin := range l.runsOn(l.Plain.Key, 0) {
		last = append(last, dfa.Concat(named, dfa.Literal(begin)))
	}
	for _, end := range l.Plain.Ends {
		for _, begin := range l.runsOn(strings.TrimLeft(l.Plain.Close, " \t\r\n")+end, 1) {
			last = append(last, dfa.Literal(begin))
		}
		if l.Plain.Close != "" {
			ends = append(ends, dfa.Concat(dfa.Literal(strings.TrimLeft(l.Plain.Close, " \t\r\n")), dfa.Star(space), dfa.Literal(end)))
			continue
		}
		ends = append(ends, dfa.Literal(end))
	}
	for _, line := range l.Plain.Lines {
		ends = append(ends, dfa.Concat(dfa.Byte('\n', '\n'), dfa.Star(space), dfa.Literal(line)))
	}
	minus, err := dfa.Compile(dfa.Alt(dfa.Concat(anything, dfa.Alt(ends...), anything), dfa.Concat(anything, dfa.Alt(last...))), c.b.Budget)
	if err != nil {
		return nil, err
	}
	return dfa.Subtract(text, minus, c.b.Budget)
}

// runsOn returns the prefixes of a text, of at least least bytes, that the text after a value
// completes or may complete.
func (l *Layout) runsOn(text string, least int) (begins []string) {
	for n := least; n < len(text); n++ {
		rest := text[n:]
		if slices.ContainsFunc(l.Plain.Follow, func(f string) bool { return strings.HasPrefix(f, rest) || f != "" && strings.HasPrefix(rest, f) }) {
			begins = append(begins, text[:n])
		}
	}
	return begins
}

// words matches the names that end a plain value.
func (l *Layout) words() *dfa.Expr {
	var alts []*dfa.Expr
	for _, name := range l.Names {
		alts = append(alts, dfa.Literal(name))
	}
	if l.Names != nil {
		return dfa.Alt(alts...)
	}
	for b := 0; b <= 0xFF; b++ {
		if isWordByte(byte(b)) {
			alts = append(alts, dfa.Byte(byte(b), byte(b)))
		}
	}
	return dfa.Repeat(dfa.Alt(alts...), 1, dfa.Unbounded)
}

// isWord reports whether a reader takes an unquoted name for the name of a property.
func isWord(name string) bool {
	return name != "" && len(name) <= maxBareName && strings.IndexFunc(name, func(r rune) bool { return r < 0x80 && !isWordByte(byte(r)) }) < 0
}

func isWordByte(b byte) bool {
	return b > ' ' && b != 0x7F && strings.IndexByte("\"'`()[]{}<>,;=\\", b) < 0
}
