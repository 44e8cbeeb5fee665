package jsonschema

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/layout"
)

// writer makes the positions of one object. A place in it is the number of members that were passed
// and the number of properties that were written, up to top.
type writer struct {
	c       *compiler
	members []member
	rest    []others
	laid    bool // in the layout of c
	end     grammar.Pos
	least   int
	most    int // below 0: no maximum
	top     int
	err     error
}

// maxPlaces is the maximum number of places of an object.
const maxPlaces = 1 << 16

// write returns the position after the opening brace.
func (w *writer) write(path string) (grammar.Pos, error) {
	if (len(w.members)+1)*(w.top+1) > maxPlaces {
		return grammar.Fail, fail(path, "the properties are too many to be counted")
	}
	after := make([]grammar.Pos, w.top+1) // by written properties
	for n := range after {
		after[n] = w.others(n)
	}
	for i := len(w.members) - 1; i >= 0; i-- {
		m := &w.members[i]
		values := make([]grammar.Pos, w.top+1) // by properties written with this one
		for n := range values {
			values[n] = grammar.Fail
			if n > 0 {
				values[n] = w.member(m, after[n])
			}
		}
		for n := range after {
			with := grammar.Fail
			if w.most < 0 || n < w.most {
				with = w.separated(n, values[min(n+1, w.top)])
			}
			if m.required {
				after[n] = with
			} else {
				after[n] = w.c.b.Split(with, after[n])
			}
		}
		if w.err != nil {
			return grammar.Fail, w.err
		}
	}
	return after[0], w.err
}

// separated returns a position that reads the text before a property after n written ones.
func (w *writer) separated(n int, next grammar.Pos) grammar.Pos {
	switch {
	case w.laid && n == 0:
		return w.c.marked(w.c.layout.First, next)
	case w.laid:
		return w.c.marked(w.c.layout.Next, next)
	case n == 0:
		return w.c.space(next)
	}
	return w.c.comma(next)
}

// ending reads what follows n properties.
func (w *writer) ending(n int) grammar.Pos {
	if w.laid && n == 0 {
		return w.c.marked(w.c.layout.Empty, w.end)
	}
	return w.end
}

// member reads a property.
func (w *writer) member(m *member, next grammar.Pos) grammar.Pos {
	if w.laid {
		if !w.c.layout.names(m.name) {
			w.err = firstError(w.err, fail(w.c.path(m.c), "the model's notation of calls has no way to write the name %q", m.name))
		}
		at, err := w.c.argument(m.name, m.c, next)
		w.err = firstError(w.err, err)
		if w.c.layout.Flipped {
			return at
		}
		return w.c.b.Literal(m.name, at)
	}
	key := jsontext.Quote(m.name)
	switch kind := w.c.kind(); {
	case kind == layout.Bare && bareName(m.name, layout.Bare):
		key = m.name
	case kind == layout.Tags && slices.ContainsFunc(w.c.layout.stops(), func(stop string) bool { return strings.Contains(key, stop) }):
		w.err = firstError(w.err, fail(w.c.path(m.c), "the model's notation of calls has no way to write the name %q", m.name))
	}
	return w.c.b.Literal(key+":", w.value(m.c, next))
}

func (w *writer) value(k conj, next grammar.Pos) grammar.Pos {
	at, err := w.c.value(k, next)
	w.err = firstError(w.err, err)
	return w.c.space(at)
}

// other reads a property with a name that is not listed.
func (w *writer) other(next grammar.Pos) grammar.Pos {
	var alts []grammar.Pos
	for _, o := range w.rest {
		if w.laid || w.c.kind() == layout.Bare {
			alts = append(alts, w.bareOther(o, next))
			continue
		}
		next := w.c.b.Literal(":", w.value(o.c, next))
		if o.names == nil {
			alts = append(alts, w.c.b.Term(o.key, next))
			continue
		}
		at, err := w.c.largeNames(o.names, next)
		w.err = firstError(w.err, err)
		alts = append(alts, at)
	}
	return w.c.b.Split(alts...)
}

// others reads the rest of an object in which n properties were written.
func (w *writer) others(n int) grammar.Pos {
	least, most := max(w.least-n, 0), -1
	if w.most >= 0 {
		most = w.most - n
	}
	if len(w.rest) == 0 || most == 0 {
		return w.c.closed(least == 0, w.ending(n))
	}
	again := func(next grammar.Pos) grammar.Pos { return w.separated(1, w.other(next)) }
	if n > 0 {
		return w.c.b.Repeat(least, most, again, w.end)
	}
	more := w.c.b.Repeat(max(least-1, 0), max(most-1, -1), again, w.end)
	return w.c.b.Split(w.separated(0, w.other(more)), w.c.closed(least == 0, w.ending(0)))
}

// bareOther reads a property with a name that is not listed and has no quotes.
func (w *writer) bareOther(o others, next grammar.Pos) grammar.Pos {
	names, err := dfa.Compile(dfa.Concat(dfa.Literal(`"`), bareNames(), dfa.Literal(`"`)), w.c.b.Budget)
	if err == nil && o.names == nil {
		names, err = dfa.Intersect(names, o.key.DFA(), w.c.b.Budget)
	}
	if err == nil {
		names, err = w.c.raw(names, "\n", "")
	}
	if err != nil {
		w.err = firstError(w.err, err)
		return grammar.Fail
	}
	var at grammar.Pos
	if w.laid {
		at, err = w.c.argument("", o.c, next)
		w.err = firstError(w.err, err)
	} else {
		at = w.c.b.Literal(":", w.value(o.c, next))
	}
	if o.names == nil {
		return w.c.b.Term(w.c.b.Terminal(names), at)
	}
	at, err = w.c.unquotedText(o.names, func(*dfa.DFA) (*dfa.DFA, error) { return names, nil }, at)
	w.err = firstError(w.err, err)
	return at
}
