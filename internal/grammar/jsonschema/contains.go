package jsonschema

import (
	"github.com/heftai/heft/internal/grammar"
)

// maxContaining is the maximum number of places of an array whose items are counted for contains.
// maxCounted is the maximum number of its contains.
const (
	maxContaining = 2048
	maxCounted    = 3
)

// counts reports whether contains restricts a.
func (a *array) counts() bool { return len(a.counted()) > 0 }

// counted returns the contains that restrict a.
func (a *array) counted() []contains {
	var list []contains
	for _, k := range a.contains {
		if k.min > 0 || k.max >= 0 {
			list = append(list, k)
		}
	}
	return list
}

// counter reads an array with contains. A place in it is the number of items that were read, up to
// items, and the number of them that satisfied each schema, as far as it matters.
type counter struct {
	c     *compiler
	a     *array
	list  []counted
	items int // from here on all items have the same schema
	all   int // places for each number of items
	rules []grammar.Rule
}

// counted is one contains of a counter.
type counted struct {
	contains
	not  conj // what items satisfy that must not count; nil: those that count may be left uncounted
	most int  // how far it is counted
	step int  // between places that differ by one
}

// containing returns a position that reads an array with contains.
func (c *compiler) containing(a *array, end grammar.Pos) (grammar.Pos, error) {
	n := &counter{c: c, a: a, items: max(1, a.prefix(), a.min, a.max), all: 1}
	list := a.counted()
	if len(list) > maxCounted {
		return grammar.Fail, fail(list[0].path, "more than %d contains for one array are not supported", maxCounted)
	}
	for _, k := range list {
		one := counted{contains: k, most: k.min, step: n.all}
		if k.max >= 0 {
			if k.max < k.min {
				return grammar.Fail, nil
			}
			id, err := c.add(&object{keys: []string{"not"}, values: map[string]any{"not": c.schemaOf(k.c)}}, k.path)
			if err != nil {
				return grammar.Fail, err
			}
			one.not, one.most = conj{id}, k.max
		}
		if one.most >= maxContaining {
			return grammar.Fail, fail(k.path, "it is not supported for so many items")
		}
		n.list = append(n.list, one)
		if n.all *= one.most + 1; n.all*(n.items+1) > maxContaining {
			return grammar.Fail, fail(k.path, "it is not supported for so many items")
		}
	}
	n.rules = make([]grammar.Rule, n.all*(n.items+1))
	for i := range n.rules {
		n.rules[i] = c.b.Rule()
	}
	for i := range n.rules {
		at, err := n.place(i/n.all, i%n.all)
		if err != nil {
			return grammar.Fail, err
		}
		c.b.Define(n.rules[i], at)
	}
	return c.b.Call(n.rules[0], end), nil
}

// schemaOf returns the schema of a conj of one node, or the schema of any value.
func (c *compiler) schemaOf(k conj) any {
	if len(k) == 0 {
		return true
	}
	return c.nodes[k[0]].v
}

// place returns a position that reads the rest after a number of items.
func (n *counter) place(items, place int) (grammar.Pos, error) {
	enough := items >= n.a.min
	for _, k := range n.list {
		enough = enough && place/k.step%(k.most+1) >= k.min
	}
	alts := []grammar.Pos{n.c.closed(enough, grammar.Return)}
	if n.a.max >= 0 && items >= n.a.max {
		return n.c.b.Split(alts...), nil
	}
	for which := range 1 << len(n.list) {
		schema, to, ok := n.choose(n.a.item(items), place, which)
		if !ok {
			continue
		}
		next := n.c.b.Call(n.rules[min(items+1, n.items)*n.all+to], grammar.Return)
		at, err := n.c.value(schema, next)
		if err != nil {
			return grammar.Fail, err
		}
		if items > 0 {
			at = n.c.comma(at)
		} else {
			at = n.c.space(at)
		}
		alts = append(alts, at)
	}
	return n.c.b.Split(alts...), nil
}

// choose returns a schema for an item that counts for the contains of the bits of which, and the
// place after it. ok is false if there would be too many.
func (n *counter) choose(item conj, place, which int) (schema conj, to int, ok bool) {
	to = place
	for i, k := range n.list {
		have := place / k.step % (k.most + 1)
		switch {
		case which>>i&1 == 0:
			item = and(item, k.not)
		case have < k.most:
			item, to = and(item, k.c), to+k.step
		case k.max >= 0:
			return nil, 0, false
		default:
			item = and(item, k.c)
		}
	}
	return item, to, true
}
