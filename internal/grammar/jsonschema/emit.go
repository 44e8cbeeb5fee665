package jsonschema

import (
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsontext"
)

// emit reads a value of s, whose schema is at path.
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

// space reads white space or nothing.
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

// maxContaining bounds the items that are counted together with those that contains counts.
const maxContaining = 2048

// counts reports whether contains restricts a.
func (a *array) counts() bool {
	for _, k := range a.contains {
		if k.min > 0 || k.max >= 0 {
			return true
		}
	}
	return false
}

// containing reads an array some of whose items satisfy another schema.
func (c *compiler) containing(a *array, end grammar.Pos) (grammar.Pos, error) {
	k := a.contains[0]
	if len(a.contains) > 1 {
		return grammar.Fail, fail(k.path, "several contains for one array are not supported")
	}
	if k.max >= 0 {
		return grammar.Fail, fail(k.path, "maxContains is not supported")
	}
	items := max(a.prefix(), a.min, a.max) // from here on all items are alike
	if (items+1)*(k.min+1) > maxContaining {
		return grammar.Fail, fail(k.path, "it is not supported for so many items")
	}
	rules := make([][]grammar.Rule, items+1)
	for i := range rules {
		rules[i] = make([]grammar.Rule, k.min+1)
		for f := range rules[i] {
			rules[i][f] = c.b.Rule()
		}
	}
	for i, row := range rules {
		for f, rule := range row {
			alts := []grammar.Pos{c.closed(i >= a.min && f >= k.min, grammar.Return)}
			if a.max < 0 || i < a.max {
				for _, with := range []struct {
					schema conj
					found  int
				}{{a.item(i), f}, {and(a.item(i), k.c), min(f+1, k.min)}} {
					next := c.b.Call(rules[min(i+1, items)][with.found], grammar.Return)
					at, err := c.value(with.schema, next)
					if err != nil {
						return grammar.Fail, err
					}
					if i > 0 {
						at = c.comma(at)
					} else {
						at = c.space(at)
					}
					alts = append(alts, at)
				}
			}
			c.b.Define(rule, c.b.Split(alts...))
		}
	}
	return c.b.Call(rules[0][0], end), nil
}

// maxUnique is how many different items an array may have if they must not repeat.
const maxUnique = 8

// uniqueItems reads an array whose items are some of few values, none of them twice.
func (c *compiler) uniqueItems(a *array, end grammar.Pos) (grammar.Pos, error) {
	s, err := c.normal(a.item(0))
	if err != nil {
		return grammar.Fail, err
	}
	values, ok := s.values()
	if a.prefix() > 0 || a.counts() || !ok || len(values) > maxUnique {
		return grammar.Fail, fail(a.unique, "it is supported only for items that are some of at most %d values", maxUnique)
	}
	count := 1 << len(values)
	after := make([]grammar.Pos, count)
	for used := count - 1; used >= 0; used-- {
		have := 0
		for i := range values {
			have += used >> i & 1
		}
		alts := []grammar.Pos{c.closed(have >= a.min, end)}
		for i, v := range values {
			if used>>i&1 != 0 || a.max >= 0 && have >= a.max {
				continue
			}
			at, err := c.spelled(v, after[used|1<<i])
			if err != nil {
				return grammar.Fail, err
			}
			if have > 0 {
				at = c.comma(at)
			} else {
				at = c.space(at)
			}
			alts = append(alts, at)
		}
		after[used] = c.b.Split(alts...)
	}
	return after[0], nil
}

// values returns the texts of s if they are few; ok is false if not.
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
