package jsonschema

import (
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsontext"
)

// emit returns a position that reads a value of s, then next. path is the path of the schema.
func (c *compiler) emit(s *set, path string, next grammar.Pos) (grammar.Pos, error) {
	var alts []grammar.Pos
	if s.null {
		alts = append(alts, c.b.Literal(c.word("null"), next))
	}
	if s.yes {
		alts = append(alts, c.b.Literal(c.word("true"), next))
	}
	if s.no {
		alts = append(alts, c.b.Literal(c.word("false"), next))
	}
	for _, n := range s.numbers {
		t, err := c.numberTerminal(n, path)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, c.b.Term(t, next))
	}
	for _, t := range s.strings {
		at, err := c.text(t, path, next)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, at)
	}
	for _, a := range s.arrays {
		at, err := c.array(a, next)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, at)
	}
	for _, o := range s.objects {
		at, err := c.record(o, path, false, next)
		if err != nil {
			return grammar.Fail, err
		}
		alts = append(alts, at)
	}
	return c.b.Split(alts...), nil
}

// space returns a position that reads optional white space, then next.
func (c *compiler) space(next grammar.Pos) grammar.Pos {
	return c.b.Split(c.b.Term(c.b.Library().Named("space", jsontext.Space), next), next)
}

// comma reads a comma.
func (c *compiler) comma(next grammar.Pos) grammar.Pos { return c.b.Literal(",", c.space(next)) }

// array reads an array.
func (c *compiler) array(a *array, next grammar.Pos) (grammar.Pos, error) {
	end := c.space(c.b.Literal("]", next))
	var at grammar.Pos
	var err error
	switch {
	case a.unique != "" && (a.max < 0 || a.max > 1):
		at, err = c.uniqueItems(a, end)
	case a.counts():
		at, err = c.containing(a, end)
	default:
		at, err = c.items(a, end)
	}
	return c.b.Literal("[", at), err
}

// items reads items that are independent of each other.
func (c *compiler) items(a *array, end grammar.Pos) (grammar.Pos, error) {
	n := a.prefix()
	if a.max >= 0 {
		n = min(n, a.max)
	}
	// after reads what follows n items or more, which have one schema.
	var err error
	item := func(i int, next grammar.Pos) grammar.Pos {
		at, e := c.value(a.item(i), next)
		err = firstError(err, e)
		return at
	}
	most := -1
	if a.max >= 0 {
		most = a.max - n
	}
	if n == 0 {
		if most == 0 {
			return c.closed(a.min == 0, end), nil
		}
		first := c.space(item(0, c.b.Repeat(max(a.min-1, 0), max(most-1, -1), func(next grammar.Pos) grammar.Pos {
			return c.comma(item(0, next))
		}, end)))
		return c.b.Split(first, c.closed(a.min == 0, end)), err
	}
	after := c.b.Repeat(max(a.min-n, 0), most, func(next grammar.Pos) grammar.Pos { return c.comma(item(n, next)) }, end)
	for i := n - 1; i >= 0; i-- {
		at := item(i, after)
		if i == 0 {
			at = c.space(at)
		} else {
			at = c.comma(at)
		}
		after = c.b.Split(at, c.closed(a.min <= i, end))
		if err := c.spend(1); err != nil {
			return grammar.Fail, err
		}
	}
	return after, err
}

func (c *compiler) closed(possible bool, end grammar.Pos) grammar.Pos {
	if possible {
		return end
	}
	return grammar.Fail
}

// Limits of the ways to read an array whose items must not repeat: which items were read, and which
// comes next.
const (
	maxUniquePlaces  = 4096
	maxUniqueChoices = 1 << 16
)

// unique reads an array whose items are distinct and come from a few values. A place in it is the
// set of items that were read.
type unique struct {
	c      *compiler
	values []string
	a      *array
	end    grammar.Pos
	after  map[string]grammar.Pos
	err    error
}

// uniqueItems returns a position that reads an array whose items are distinct and come from a few
// values.
func (c *compiler) uniqueItems(a *array, end grammar.Pos) (grammar.Pos, error) {
	s, err := c.normal(a.item(0))
	if err != nil {
		return grammar.Fail, err
	}
	values, ok := s.values()
	most := len(values)
	if a.max >= 0 {
		most = min(most, a.max)
	}
	places, choices, ways := 0, 0, 1 // ways to choose n of the values
	for n := 0; n <= most && ok; n++ {
		places, choices = places+ways, choices+ways*(len(values)-n)
		ways = ways * (len(values) - n) / (n + 1)
		ok = places <= maxUniquePlaces && choices <= maxUniqueChoices
	}
	if a.prefix() > 0 || a.counts() || !ok {
		return grammar.Fail, fail(a.unique, "it is supported only for items that are some of few values: 11 of them, or more with a small maxItems")
	}
	u := &unique{c: c, values: values, a: a, end: end, after: map[string]grammar.Pos{}}
	at := u.place(make([]byte, len(values)), 0)
	return at, u.err
}

// place returns a position that reads the rest after the values that are marked in used.
func (u *unique) place(used []byte, have int) grammar.Pos {
	if at, ok := u.after[string(used)]; ok {
		return at
	}
	alts := []grammar.Pos{u.c.closed(have >= u.a.min, u.end)}
	for i, v := range u.values {
		if used[i] != 0 || u.a.max >= 0 && have >= u.a.max {
			continue
		}
		used[i] = 1
		next := u.place(used, have+1)
		used[i] = 0
		at, err := u.c.spelled(v, next)
		u.err = firstError(u.err, err)
		switch {
		case next == grammar.Fail:
			continue
		case have > 0:
			at = u.c.comma(at)
		default:
			at = u.c.space(at)
		}
		alts = append(alts, at)
	}
	at := u.c.b.Split(alts...)
	u.after[string(used)] = at
	return at
}

// values returns the texts of s if there are few. ok is false otherwise.
func (s *set) values() (list []string, ok bool) {
	if len(s.arrays)+len(s.objects) > 0 {
		return nil, false
	}
	if s.null {
		list = append(list, "null")
	}
	if s.yes {
		list = append(list, "true")
	}
	if s.no {
		list = append(list, "false")
	}
	for _, n := range s.numbers {
		if n.texts == nil {
			return nil, false
		}
		var last *number
		for _, t := range n.texts { // one spelling of each
			one := &number{texts: []string{t}}
			if last == nil || !last.has(t) {
				list = append(list, t)
			}
			last = one
		}
	}
	known := map[string]bool{}
	for _, t := range s.strings {
		if t.texts == nil || len(t.patterns)+len(t.formats)+len(t.not) > 0 || t.min > 0 || t.max >= 0 {
			return nil, false
		}
		for _, text := range t.texts {
			if !known[text] {
				known[text] = true
				list = append(list, jsontext.Quote(text))
			}
		}
	}
	return list, true
}
