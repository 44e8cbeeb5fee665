package jsonschema

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/chars"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/regex"
)

// Spellings of texts: in JSON strings, and as they are. The automata of whole strings are JSON.
var (
	quotedSpelling = &chars.Spelling{Char: jsontext.Char, Escape: jsontext.Escape, Open: `"`, Close: `"`}
	plainSpelling  = &chars.Spelling{Char: dfa.Runes, Escape: func(c byte) string { return string([]byte{c}) }}
)

// cheaply calls do with a small part of the budget.
func cheaply[T any](c *compiler, do func() (T, error)) (T, error) {
	whole := c.b.Budget
	defer func() { c.b.Budget = whole }()
	return regex.Cheap(whole, func(small *dfa.Budget) (T, error) {
		c.b.Budget = small
		return do()
	})
}

// restricted reports whether t has more than limits of length.
func (t *str) restricted() bool { return len(t.patterns)+len(t.formats)+len(t.not) > 0 }

// language returns the strings of t in a spelling, without its texts. All parts of base read them, too.
func (c *compiler) language(t *str, base []*chars.Part, sp *chars.Spelling) (*chars.Language, error) {
	s := &chars.Set{With: base, Min: t.min, Max: t.max}
	budget := c.b.Budget
	for _, p := range t.patterns {
		with, without, err := c.patternParts(p)
		if err != nil {
			return nil, err
		}
		s.With, s.Without = append(s.With, with...), append(s.Without, without...)
	}
	for _, f := range t.formats {
		part, err := chars.FromDFA(c.formatDFA(f.text), quotedSpelling, budget)
		if err != nil {
			return nil, err
		}
		s.With = append(s.With, part)
		if n := formats[f.text].most; n > 0 {
			s.Max = both(s.Max, n)
		}
	}
	for _, n := range t.not {
		part, err := c.excluded(n)
		if err != nil {
			return nil, err
		}
		s.Without = append(s.Without, part)
	}
	escaped := *sp
	escaped.Char = func(ranges []dfa.Range) *dfa.Expr { return dfa.Replace(sp.Char(ranges), c.b.Escape) }
	return chars.New(s, &escaped, budget)
}

// patternParts returns automata over characters. A text matches a pattern if all of with read it and
// none of without.
func (c *compiler) patternParts(p place) (with, without []*chars.Part, err error) {
	if with, without, err = regex.Parts(p.text, c.b.Budget); err == nil {
		return with, without, nil
	}
	d, err := c.patternDFA(p)
	if err != nil {
		return nil, nil, err
	}
	part, err := chars.FromDFA(d, quotedSpelling, c.b.Budget)
	return []*chars.Part{part}, nil, err
}

// excluded returns an automaton over the characters of the strings of n.
func (c *compiler) excluded(n *str) (*chars.Part, error) {
	if len(n.patterns) == 1 && len(n.formats)+len(n.not) == 0 && n.texts == nil && n.min == 0 && n.max < 0 {
		if with, without, err := c.patternParts(n.patterns[0]); err == nil && len(with) == 1 && len(without) == 0 {
			return with[0], nil
		}
	}
	d, err := c.strDFA(n, "")
	if err != nil {
		return nil, err
	}
	return chars.FromDFA(d, quotedSpelling, c.b.Budget)
}

// quotedText returns a position that reads the strings of t with their quotes, then next. Their
// automaton over bytes is too large. allowed is an automaton of all strings that can be written.
func (c *compiler) quotedText(t *str, allowed *dfa.DFA, next grammar.Pos) (grammar.Pos, error) {
	var base []*chars.Part
	if allowed != nil {
		part, err := chars.FromDFA(allowed, quotedSpelling, c.b.Budget)
		if err != nil {
			return grammar.Fail, err
		}
		base = append(base, part)
	}
	l, err := c.language(t, base, quotedSpelling)
	switch {
	case err != nil || l.IsEmpty():
		return grammar.Fail, err
	case t.texts == nil:
		return c.b.Literal(`"`, c.b.Term(c.b.Language(l), c.b.Literal(`"`, next))), nil
	}
	var alts []grammar.Pos
	for _, text := range t.texts {
		if !l.Match(c.escaped(unquoted(text))) {
			continue
		}
		for _, s := range jsontext.Spellings(text) {
			alts = append(alts, c.b.Literal(s, next))
		}
	}
	return c.b.Split(alts...), nil
}

// unquoted returns a text in its shortest spelling, without quotes.
func unquoted(text string) string {
	return strings.TrimSuffix(strings.TrimPrefix(jsontext.Quote(text), `"`), `"`)
}

// escaped returns the spelling of a text in the part that the builder builds.
func (c *compiler) escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteString(c.b.Escape(text[i]))
	}
	return b.String()
}

// unquotedText returns a position that reads the strings of t without quotes, then next. Their automaton
// over bytes is too large. write makes the automaton of all texts that can be written from that of all
// strings.
func (c *compiler) unquotedText(t *str, write func(*dfa.DFA) (*dfa.DFA, error), next grammar.Pos) (grammar.Pos, error) {
	allowed, err := write(c.short())
	if err != nil {
		return grammar.Fail, err
	}
	part, err := chars.FromDFA(allowed, plainSpelling, c.b.Budget)
	if err != nil {
		return grammar.Fail, err
	}
	l, err := c.language(t, []*chars.Part{part}, plainSpelling)
	switch {
	case err != nil || l.IsEmpty():
		return grammar.Fail, err
	case t.texts == nil:
		return c.b.Term(c.b.Language(l), next), nil
	}
	var alts []grammar.Pos
	for _, text := range t.texts {
		if l.Match(c.escaped(text)) {
			alts = append(alts, c.b.Literal(text, next))
		}
	}
	return c.b.Split(alts...), nil
}

// noStrings reports whether t has no strings.
func (c *compiler) noStrings(t *str) (bool, error) {
	if d, err := cheaply(c, func() (*dfa.DFA, error) { return c.strDFA(t, "") }); err == nil {
		return d.IsEmpty(), nil
	}
	l, err := c.language(t, nil, quotedSpelling)
	if err != nil || t.texts == nil {
		return err == nil && l.IsEmpty(), err
	}
	return !slices.ContainsFunc(t.texts, func(text string) bool { return l.Match(c.escaped(unquoted(text))) }), nil
}

// has reports whether text is one of the strings of t.
func (c *compiler) has(t *str, text string) (bool, error) {
	if d, err := cheaply(c, func() (*dfa.DFA, error) { return c.strDFA(t, "") }); err == nil {
		return d.Match(jsontext.Quote(text)), nil
	}
	l, err := c.language(t, nil, quotedSpelling)
	return err == nil && l.Match(c.escaped(unquoted(text))) && (t.texts == nil || slices.Contains(t.texts, text)), err
}
