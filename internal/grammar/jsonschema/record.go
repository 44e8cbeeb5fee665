package jsonschema

import (
	"slices"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/regex"
	"github.com/heftai/heft/internal/layout"
)

// property returns the schema of the property with a name.
func (c *compiler) property(o *record, name string) (conj, error) {
	var k conj
	for i := range o.layers {
		l := &o.layers[i]
		own, found := l.props[name]
		k = and(k, own)
		for _, p := range l.patterns {
			matches, err := c.has(c.patternNames(p.place), name)
			if err != nil {
				return nil, err
			}
			if matches {
				k, found = and(k, p.c), true
			}
		}
		if !found {
			k = and(k, l.others)
		}
	}
	if o.names == nil {
		return k, nil
	}
	s, err := c.normal(o.names)
	if err != nil {
		return nil, err
	}
	for _, t := range s.strings {
		if allowed, err := c.has(t, name); err != nil || allowed {
			return k, err
		}
	}
	none, err := c.add(false, c.path(o.names))
	return and(k, conj{none}), err
}

// patternNames returns the strings that match a pattern. The same pattern has the same result.
func (c *compiler) patternNames(p place) *str {
	t := c.patterns[p.text]
	if t == nil {
		t = &str{max: -1, patterns: []place{p}}
		c.patterns[p.text] = t
	}
	return t
}

// patternDFA returns the automaton of the strings that match a pattern.
func (c *compiler) patternDFA(p place) (*dfa.DFA, error) { return c.patternWithin(p, c.b.Budget) }

func (c *compiler) patternWithin(p place, budget *dfa.Budget) (*dfa.DFA, error) {
	t, err := c.b.Library().Shared("pattern "+p.text, func() (*dfa.DFA, error) {
		d, err := regex.Quoted(p.text, jsontext.Char, budget)
		if err != nil {
			return nil, patternError(p, err)
		}
		return d, nil
	})
	if err != nil {
		return nil, err
	}
	return t.DFA(), nil
}

// nameDFA returns the automaton of the names that satisfy a schema.
func (c *compiler) nameDFA(k conj) (*dfa.DFA, error) {
	s, err := c.normal(k)
	if err != nil {
		return nil, err
	}
	var list []*dfa.DFA
	for _, t := range s.strings {
		d, err := c.strDFA(t, c.path(k))
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return dfa.Union(list, c.b.Budget)
}

// member is a listed property of an object.
type member struct {
	name     string
	c        conj
	required bool
}

// others are properties whose names a schema does not list: those of key or, if their automaton
// over bytes is too large, those of names.
type others struct {
	key   *grammar.Terminal
	names *str
	c     conj
}

// members lists the properties of o with names. ok is false if a required property is impossible.
func (c *compiler) members(o *record) (list []member, names []string, ok bool, err error) {
	known := map[string]bool{}
	required := make(map[string]bool, len(o.required))
	for _, name := range o.required {
		required[name] = true
	}
	add := func(all []string) {
		for _, name := range all {
			if !known[name] {
				known[name] = true
				names = append(names, name)
			}
		}
	}
	for i := range o.layers {
		add(o.layers[i].names)
	}
	add(o.required)
	for _, name := range names {
		k, err := c.property(o, name)
		if err != nil {
			return nil, nil, false, err
		}
		s, err := c.normal(k)
		if err != nil {
			return nil, nil, false, err
		}
		if s.empty() {
			if required[name] {
				return nil, nil, false, nil
			}
			continue
		}
		list = append(list, member{name, k, required[name]})
	}
	return list, names, true, nil
}

// maxPatterns is the maximum number of patterns of names in one object.
const maxPatterns = 16

// nameClass are names that match the same patterns.
type nameClass struct {
	d       *dfa.DFA // nil: all names
	names   *str     // if not nil, the names of the class instead of d
	matched []string
}

// nameClasses splits the names of o by the patterns that they match.
func (c *compiler) nameClasses(o *record) ([]nameClass, error) {
	classes := []nameClass{{}}
	if o.names != nil {
		d, err := c.nameDFA(o.names)
		if err != nil {
			return nil, err
		}
		classes[0].d = d
	}
	done := map[string]bool{}
	for i := range o.layers {
		for _, p := range o.layers[i].patterns {
			if done[p.text] {
				continue
			}
			done[p.text] = true
			if len(done) > maxPatterns {
				return nil, fail(o.layers[i].path, "more than %d patterns of names", maxPatterns)
			}
			d, err := c.patternDFA(p.place)
			if err != nil {
				return nil, err
			}
			if classes, err = c.splitClasses(classes, d, p.text); err != nil {
				return nil, err
			}
		}
	}
	return classes, nil
}

// splitClasses splits each class in the names of d and the others.
func (c *compiler) splitClasses(classes []nameClass, d *dfa.DFA, pattern string) ([]nameClass, error) {
	var split []nameClass
	for _, k := range classes {
		if k.d == nil {
			k.d = c.short()
		}
		in, err := dfa.Intersect(k.d, d, c.b.Budget)
		if err != nil {
			return nil, err
		}
		out, err := dfa.Subtract(k.d, d, c.b.Budget)
		if err != nil {
			return nil, err
		}
		split = append(split, nameClass{d: in, matched: append(slices.Clone(k.matched), pattern)}, nameClass{d: out, matched: k.matched})
	}
	return slices.DeleteFunc(split, func(k nameClass) bool { return k.d.IsEmpty() }), nil
}

// others lists the properties with other names that o may have.
func (c *compiler) others(o *record, names []string) ([]others, error) {
	classes, err := cheaply(c, func() ([]nameClass, error) { return c.nameClasses(o) })
	if err != nil {
		if classes, err = c.largeClasses(o); err != nil {
			if classes, err = c.nameClasses(o); err != nil {
				return nil, err
			}
		}
	}
	var out []others
	for _, k := range classes {
		schema := o.other(k.matched)
		s, err := c.normal(schema)
		if err != nil {
			return nil, err
		}
		if s.empty() {
			continue
		}
		if k.names != nil {
			out = append(out, others{names: k.names.except(names), c: schema})
			continue
		}
		key, err := c.keyTerminal(k.d, names)
		if err != nil {
			return nil, err
		}
		out = append(out, others{key: key, c: schema})
	}
	return out, nil
}

// other returns the schema of a property that no layer names and that matches the given patterns.
func (r *record) other(matched []string) conj {
	var k conj
	for i := range r.layers {
		l, found := &r.layers[i], false
		for _, p := range l.patterns {
			if slices.Contains(matched, p.text) {
				k, found = and(k, p.c), true
			}
		}
		if !found {
			k = and(k, l.others)
		}
	}
	return k
}

// keyTerminal returns the terminal of the names of d except those in names. If d is nil, it is the
// terminal of all other names.
func (c *compiler) keyTerminal(d *dfa.DFA, names []string) (*grammar.Terminal, error) {
	var texts []string
	for _, name := range names {
		texts = append(texts, jsontext.Spellings(name)...)
	}
	if d == nil && c.layout == nil {
		all := c.b.Library().Named("key", jsontext.Short)
		if len(names) == 0 {
			return all, nil
		}
		return all.Except(texts), nil
	}
	if d == nil {
		d = c.short()
	}
	alts := make([]*dfa.Expr, len(texts))
	for i, t := range texts {
		alts[i] = dfa.Literal(t)
	}
	minus, err := dfa.Compile(dfa.Alt(alts...), c.b.Budget)
	if err != nil {
		return nil, err
	}
	if d, err = dfa.Subtract(d, minus, c.b.Budget); err != nil {
		return nil, err
	}
	if c.kind() == layout.Tags {
		if d, err = without(c.layout.stops(), d, c.b.Budget); err != nil {
			return nil, err
		}
	}
	return c.b.Terminal(d), nil
}

// record returns a position that reads an object. laid means that it has the layout of c.
func (c *compiler) record(o *record, path string, laid bool, next grammar.Pos) (grammar.Pos, error) {
	list, names, ok, err := c.members(o)
	if err != nil || !ok {
		return grammar.Fail, err
	}
	rest, err := c.others(o, names)
	if err != nil {
		return grammar.Fail, err
	}
	if laid && c.layout.listed() {
		rest = nil
	}
	w := &writer{c: c, members: list, rest: rest, laid: laid, end: next, top: 1, most: -1}
	if !laid {
		w.end = c.space(c.b.Literal("}", next))
	}
	required := 0
	for _, m := range list {
		if m.required {
			required++
		}
	}
	if o.min > required {
		w.least, w.top = o.min, o.min
		if len(rest) > 0 && o.min > required+1 {
			return grammar.Fail, fail(o.minPath, "it is not supported together with names that the schema does not list, which may repeat")
		}
	}
	if o.max >= 0 && (o.max < len(list) || len(rest) > 0) {
		w.most, w.top = o.max, o.max
	}
	at, err := w.write(path)
	if laid {
		return at, err
	}
	return c.b.Literal("{", at), err
}
