package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// matcher finds the places of a text that a pattern names.
type matcher interface {
	// each calls found for each match from left to right; matches do not overlap.
	// The errors are ErrTooSlow and found's, which ends the search.
	each(s string, found func(start, end int) error) error
}

// literal matches its own text.
type literal string

func (l literal) each(s string, found func(start, end int) error) error {
	if l == "" { // an empty pattern matches between all characters
		err := found(0, 0)
		for i, r := range s {
			if err != nil {
				return err
			}
			end := i + utf8.RuneLen(r)
			err = found(end, end)
		}
		return err
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(l))
		if i < 0 {
			return nil
		}
		if err := found(at+i, at+i+len(l)); err != nil {
			return err
		}
		at += i + len(l)
	}
}

// runeMatcher matches each character it accepts, one at a time.
type runeMatcher func(r rune) bool

func (f runeMatcher) each(s string, found func(start, end int) error) error {
	for i, r := range s {
		if !f(r) {
			continue
		}
		if err := found(i, i+utf8.RuneLen(r)); err != nil {
			return err
		}
	}
	return nil
}

// patternSpec is the JSON of a pattern: {"String": …} or {"Regex": …}.
type patternSpec struct {
	String *string
	Regex  *string
}

func (spec patternSpec) compile(path string) (matcher, error) {
	switch {
	case spec.String != nil:
		return literal(*spec.String), nil
	case spec.Regex != nil:
		re, err := compileRegex(*spec.Regex)
		if err != nil {
			return nil, fmt.Errorf("%s.pattern.Regex: %w", path, err)
		}
		return re, nil
	}
	return nil, errors.New(path + ".pattern: neither String nor Regex")
}

// behavior says what becomes of the matches of a Split.
type behavior uint8

const (
	removed behavior = iota
	isolated
	mergedWithPrevious
	mergedWithNext
	contiguous
)

func parseBehavior(name, path string) (behavior, error) {
	for i, known := range []string{"removed", "isolated", "mergedwithprevious", "mergedwithnext", "contiguous"} {
		if strings.ToLower(strings.ReplaceAll(name, "_", "")) == known {
			return behavior(i), nil
		}
	}
	return 0, fmt.Errorf("%s.behavior: %q is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", path, name)
}

// stretch is a part of a text that is a match, or lies between matches.
type stretch struct {
	start, end int
	match      bool
}

// stretches covers p with the matches of m and what lies between them.
func stretches(p piece, m matcher, invert bool, out []stretch) ([]stretch, error) {
	at, s := 0, p.s
	err := m.each(s, func(start, end int) error {
		if at < start {
			out = append(out, stretch{at, start, invert})
		}
		out = append(out, stretch{start, end, !invert})
		at = end
		return p.bounds.step()
	})
	if at < len(s) {
		out = append(out, stretch{at, len(s), invert})
	}
	return out, err
}

// split cuts p at the matches of m and emits the pieces.
func split(p piece, m matcher, how behavior, invert bool, emit func(piece) error) error {
	if how == isolated {
		return isolate(p, m, emit)
	}
	list, err := stretches(p, m, invert, nil)
	if err != nil {
		return err
	}
	for _, x := range how.join(list) {
		if err := emit(p.cut(x.start, x.end)); err != nil {
			return err
		}
	}
	return nil
}

// isolate is split with behavior Isolated, where all that counts is the cuts.
func isolate(p piece, m matcher, emit func(piece) error) error {
	at := 0
	err := m.each(p.s, func(start, end int) error {
		if at < start {
			if err := emit(p.cut(at, start)); err != nil {
				return err
			}
		}
		at = end
		return emit(p.cut(start, end))
	})
	if err == nil && at < len(p.s) {
		err = emit(p.cut(at, len(p.s)))
	}
	return err
}

// join applies the behavior to the stretches of a text, in place.
func (how behavior) join(list []stretch) []stretch {
	out := list[:0]
	before := false // the stretch before was a match
	switch how {
	case removed:
		for _, x := range list {
			if !x.match {
				out = append(out, x)
			}
		}
	case contiguous:
		for _, x := range list {
			if n := len(out); n > 0 && x.match == before {
				out[n-1].end = x.end
			} else {
				out = append(out, x)
			}
			before = x.match
		}
	case mergedWithPrevious:
		for _, x := range list {
			if n := len(out); n > 0 && x.match && !before {
				out[n-1].end = x.end
			} else {
				out = append(out, x)
			}
			before = x.match
		}
	case mergedWithNext:
		for i, x := range list {
			next := i+1 < len(list) && list[i+1].match
			// A match joins what follows it, unless that is a match too.
			if n := len(out); n > 0 && before && !x.match {
				out[n-1].end = x.end
			} else {
				out = append(out, x)
			}
			before = x.match && !next
		}
	}
	return out
}
