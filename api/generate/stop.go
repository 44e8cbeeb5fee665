package generate

import "strings"

// stopper ends a text that arrives in pieces before the first of its stop strings. It holds back
// text that may be the start of a stop string.
type stopper struct {
	stops   []string
	include bool // the text ends after the stop string
	held    string
	found   string // the stop string that has ended the text
}

// add returns the text that no longer changes, and reports whether a stop string has ended it.
func (s *stopper) add(text string) (out string, stopped bool) {
	if len(s.stops) == 0 {
		return text, false
	}
	text = s.held + text
	s.held = ""
	if at, stop := earliest(text, s.stops); at >= 0 {
		s.found = stop
		if s.include {
			at += len(stop)
		}
		return text[:at], true
	}
	n := len(text) - s.open(text)
	s.held = text[n:]
	return text[:n], false
}

// pass adds text without looking for stop strings.
func (s *stopper) pass(text string) string { return s.flush() + text }

// flush returns the text that was held back. No more text follows.
func (s *stopper) flush() string {
	out := s.held
	s.held = ""
	return out
}

// open returns the length of the longest suffix of text that is a prefix of a stop string.
func (s *stopper) open(text string) int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(text), len(stop)-1); n > longest; n-- {
			if strings.HasPrefix(stop, text[len(text)-n:]) {
				longest = n
			}
		}
	}
	return longest
}

// earliest finds the stop string that starts first in text, and among several the shortest. at is
// -1 if there is none.
func earliest(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		i := strings.Index(text, s)
		if i >= 0 && (at < 0 || i < at || i == at && len(s) < len(stop)) {
			at, stop = i, s
		}
	}
	return at, stop
}
