package jsonschema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// Plain says where values end that have neither quotes nor an end of their own, as in YAML or KEY=VALUE: where
// the next property begins, or what follows the object.
type Plain struct {
	Next string // stands between a value and the next name; blanks may follow it
	Key  string // ends a name; "": values are not plain
	// Ends follow the object, and Lines do so on lines of their own.
	Ends, Lines []string
}

func (l *Layout) plain() bool { return l.Plain.Key != "" }

// listed reports whether only names that the schema lists can be written.
func (l *Layout) listed() bool { return l.KeyMark != "" || l.plain() && l.Names != nil }

// plainKey tells Plain texts of a layout from others.
func (l *Layout) plainKey() string {
	if !l.plain() {
		return ""
	}
	return fmt.Sprintf("%+v %q", l.Plain, l.Names)
}

// neverText is in no text.
const neverText = "\xFF"

// ends returns the text that no string of a property has, and what ends its value.
func (l *Layout) ends(name string) (stop, end string) {
	switch {
	case l.plain():
		return neverText, ""
	case l.KeyMark == "":
		return l.Stop, l.End
	}
	return strings.ReplaceAll(l.Stop, l.KeyMark, name), strings.ReplaceAll(l.End, l.KeyMark, name)
}

// stops are the texts that strings within other values do not have.
func (l *Layout) stops() []string {
	switch {
	case l.plain():
		key := l.Plain.Key
		if strings.TrimSpace(key) == "" {
			key = l.Plain.Next
		}
		stops := slices.Clone(l.Plain.Ends)
		if !strings.Contains(l.Plain.Next, "\n") { // else no string of JSON has it
			stops = append(stops, key)
		}
		return stops
	case l.KeyMark == "":
		return []string{l.Stop}
	}
	before, _, _ := strings.Cut(l.Stop, l.KeyMark)
	return []string{before}
}

// scalars reports whether arrays and objects cannot be written, because their punctuation may end a value.
func (l *Layout) scalars() bool {
	structural := func(stop string) bool { return strings.Trim(stop, "{}[],:\" \t\r\n") == "" }
	if l.plain() {
		return slices.ContainsFunc(slices.Concat(l.Plain.Ends, l.Plain.Lines), structural)
	}
	return structural(l.Stop)
}

// plainText returns the texts that end where the reader of a plain value takes them to end.
func (c *compiler) plainText(text *dfa.DFA) (*dfa.DFA, error) {
	l, anything := c.layout, dfa.Star(dfa.Byte(0, 0xFF))
	blank := dfa.Alt(dfa.Byte(' ', ' '), dfa.Byte('\t', '\t'))
	space := dfa.Alt(blank, dfa.Byte('\n', '\n'), dfa.Byte('\r', '\r'))
	ends := []*dfa.Expr{dfa.Concat(dfa.Literal(l.Plain.Next), dfa.Star(blank), l.words(), dfa.Literal(l.Plain.Key))}
	for _, end := range l.Plain.Ends {
		ends = append(ends, dfa.Literal(end))
	}
	for _, line := range l.Plain.Lines {
		ends = append(ends, dfa.Concat(dfa.Byte('\n', '\n'), dfa.Star(space), dfa.Literal(line)))
	}
	minus, err := dfa.Compile(dfa.Alt(dfa.Concat(anything, dfa.Alt(ends...), anything), dfa.Concat(anything, space)), c.b.Budget)
	if err != nil {
		return nil, err
	}
	return dfa.Subtract(text, minus, c.b.Budget)
}

// words are the names that end a plain value.
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

// isWord reports whether a reader takes name for the name of a property where nothing quotes it.
func isWord(name string) bool {
	return name != "" && len(name) <= maxBareName && strings.IndexFunc(name, func(r rune) bool { return r < 0x80 && !isWordByte(byte(r)) }) < 0
}

func isWordByte(b byte) bool {
	return b > ' ' && b != 0x7F && strings.IndexByte("\"'`()[]{}<>,;=\\", b) < 0
}
