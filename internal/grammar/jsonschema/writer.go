package jsonschema

import (
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsontext"
)

// writer makes the positions of one object. A place in it is how many of its members were passed and
// how many properties were written, up to top.
type writer struct {
	c       *compiler
	members []member
	rest    []others
	end     grammar.Pos
	least   int
	most    int // below 0: any number
	top     int
	err     error
}

// maxPlaces bounds the places of an object.
const maxPlaces = 1 << 16

// write returns the position behind the brace.
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

// separated reads what stands before a property if n were written.
func (w *writer) separated(n int, next grammar.Pos) grammar.Pos {
	if n == 0 {
		return w.c.space(next)
	}
	return w.c.comma(next)
}

// member reads a property.
func (w *writer) member(m *member, next grammar.Pos) grammar.Pos {
	return w.c.b.Literal(jsontext.Quote(m.name)+":", w.value(m.c, next))
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
		alts = append(alts, w.c.b.Term(o.key, w.c.b.Literal(":", w.value(o.c, next))))
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
		return w.c.closed(least == 0, w.end)
	}
	if n > 0 {
		return w.c.b.Repeat(least, most, func(next grammar.Pos) grammar.Pos { return w.c.comma(w.other(next)) }, w.end)
	}
	more := w.c.b.Repeat(max(least-1, 0), max(most-1, -1), func(next grammar.Pos) grammar.Pos { return w.c.comma(w.other(next)) }, w.end)
	return w.c.b.Split(w.c.space(w.other(more)), w.c.closed(least == 0, w.end))
}
