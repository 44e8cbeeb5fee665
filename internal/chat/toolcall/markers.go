package toolcall

import (
	"slices"
	"strings"
)

type action uint8

const (
	actDrop     action = iota
	actThink           // reasoning starts
	actThought         // reasoning ends
	actImplied         // reasoning ends before the marker
	actSection         // a form's section starts
	actBareCall        // a form's call starts, without a section
	actStray           // reasoning starts or ends again, before any other text
)

// A marker is a text that ends a stretch of plain text.
type marker struct {
	text  string
	act   action
	form  *form
	think int
}

// markers are the markers that are recognised in one kind of plain text.
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

// next returns the first position from i on where a marker may start, or len(s).
func (m *markers) next(s string, i int) int {
	for ; i < len(s); i++ {
		if m.first[s[i]] {
			return i
		}
	}
	return i
}

// match finds the longest marker at the start of s. partial reports that more text may make it a
// longer one, unless end is set.
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
