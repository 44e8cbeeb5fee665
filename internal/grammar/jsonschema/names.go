package jsonschema

import (
	"slices"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/layout"
)

// largeClasses is nameClasses without automata over bytes, for patterns whose automata are too
// large. It keeps empty classes, which read no property.
func (c *compiler) largeClasses(o *record) ([]nameClass, error) {
	all := []*str{{max: -1}}
	if o.names != nil {
		s, err := c.normal(o.names)
		if err != nil {
			return nil, err
		}
		all = s.strings
	}
	var classes []nameClass
	for _, t := range all {
		classes = append(classes, nameClass{names: t})
	}
	done := map[string]bool{}
	for i := range o.layers {
		for _, p := range o.layers[i].patterns {
			if done[p.text] {
				continue
			}
			done[p.text] = true
			var split []nameClass
			for _, k := range classes {
				in := k.names.and(c.patternNames(p.place))
				out := k.names.and(&str{max: -1, not: []*str{c.patternNames(p.place)}})
				split = append(split, nameClass{names: in, matched: append(slices.Clone(k.matched), p.text)}, nameClass{names: out, matched: k.matched})
			}
			if classes = split; len(done) > maxPatterns || len(classes) > maxLargeClasses {
				return nil, fail(o.layers[i].path, "the patterns of names are too large or too many")
			}
		}
	}
	return classes, nil
}

// maxLargeClasses is the maximum number of classes of names without automata over bytes.
const maxLargeClasses = 64

// except returns t without texts.
func (t *str) except(texts []string) *str {
	if len(texts) == 0 {
		return t
	}
	return t.and(&str{max: -1, not: []*str{{texts: texts, max: -1}}})
}

// largeNames returns a position that reads a quoted name of t, then next.
func (c *compiler) largeNames(t *str, next grammar.Pos) (grammar.Pos, error) {
	return c.eitherText(t, next, func() (*grammar.Terminal, error) { return c.strTerminal(t, "") },
		func() (grammar.Pos, error) { return c.largeText(t, next) })
}

// largeText returns a position that reads a quoted string of t, then next. Its automaton over bytes is
// too large.
func (c *compiler) largeText(t *str, next grammar.Pos) (grammar.Pos, error) {
	if c.kind() != layout.Tags {
		return c.quotedText(t, nil, next)
	}
	allowed, err := without(c.layout.stops(), c.short(), c.b.Budget)
	if err != nil {
		return grammar.Fail, err
	}
	return c.quotedText(t, allowed, next)
}
