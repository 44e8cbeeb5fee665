package toolcall

import (
	"slices"
	"strings"
)

type action uint8

const (
	actDrop     action = iota
	actThink           // reasoning begins
	actThought         // reasoning ends
	actImplied         // reasoning ends before the marker
	actSection         // a form's section begins
	actBareCall        // a form's call begins, without a section
	actStray           // reasoning begins or ends again, before anything else has come
)

// A marker is a text that ends a stretch of plain text.
type marker struct {
	text  string
	act   action
	form  *form
	think int
}

// markers are those that count in one kind of plain text.
type markers struct {
	list  []marker // the longest first
	first [256]bool
}

func newMarkers(list []marker) *markers {
	slices.SortStableFunc(list, func(a, b marker) int { return len(b.text) - len(a.text) })
	m := &markers{list: list}
	for _, k := range list {
		m.first[k.text[0]] = true
	}
	return m
}

// next is the first place from i on where a marker may begin, or len(s).
func (m *markers) next(s string, i int) int {
	for ; i < len(s); i++ {
		if m.first[s[i]] {
			return i
		}
	}
	return i
}

// match finds the longest marker that s begins with. With partial, s may become a
// longer one, unless it is the end of the text.
func (m *markers) match(s string, end bool) (found *marker, partial bool) {
	for i := range m.list {
		k := &m.list[i]
		if len(s) < len(k.text) {
			if !end && strings.HasPrefix(k.text, s) {
				return nil, true
			}
		} else if strings.HasPrefix(s, k.text) {
			return k, false
		}
	}
	return nil, false
}
