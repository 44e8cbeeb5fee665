package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// matcher finds the places of a text that a pattern names.
type matcher interface {
	// each calls found for each match from left to right; matches do not overlap. It takes
	// the steps of its work from what is left of a text's, nil for any number. The errors are
	// ErrTooSlow and found's, which ends the search.
	each(s string, left *int, found func(start, end int) error) error
}

// literal matches its own text.
type literal string

func (l literal) each(s string, _ *int, found func(start, end int) error) error {
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

func (f runeMatcher) each(s string, _ *int, found func(start, end int) error) error {
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
	return nil, errors.New(path + ".pattern: want String or Regex")
}

// behavior says what a Split does with its matches.
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
	return 0, fmt.Errorf("%s.behavior: got %q, want one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", path, name)
}

// section is a part of a text: a match, or the text between two matches.
type section struct {
	start, end int
	match      bool
}

// sections emits the parts of p in order: the matches of m and the text between them.
func sections(p piece, m matcher, invert bool, emit func(section) error) error {
	at := 0
	err := m.each(p.s, p.steps(), func(start, end int) error {
		if at < start {
			if err := emit(section{at, start, invert}); err != nil {
				return err
			}
		}
		at = end
		if err := p.bounds.step(); err != nil {
			return err
		}
		return emit(section{start, end, !invert})
	})
	if err == nil && at < len(p.s) {
		err = emit(section{at, len(p.s), invert})
	}
	return err
}

// split cuts p at the matches of m and emits the pieces. It holds two of them at a time.
func split(p piece, m matcher, how behavior, invert bool, emit func(piece) error) error {
	if how == isolated {
		return isolate(p, m, emit)
	}
	j := joiner{how: how, emit: func(x section) error { return emit(p.cut(x.start, x.end)) }}
	if err := sections(p, m, invert, j.add); err != nil {
		return err
	}
	return j.end()
}

// isolate is split with behavior Isolated, for which only the cuts count.
func isolate(p piece, m matcher, emit func(piece) error) error {
	at := 0
	err := m.each(p.s, p.steps(), func(start, end int) error {
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

// joiner applies a behavior to the sections of a text as they come.
type joiner struct {
	how  behavior
	emit func(section) error

	next   section // added and not yet worked on, as its successor may matter
	out    section // to be emitted once nothing joins it any more
	queued bool    // next is there
	held   bool    // out is there
	before bool    // see put
}

// add takes the next section.
func (j *joiner) add(x section) error {
	if j.how == removed {
		if x.match {
			return nil
		}
		return j.emit(x)
	}
	var err error
	if j.queued {
		err = j.put(j.next, x.match)
	}
	j.next, j.queued = x, true
	return err
}

// put joins x to the section before it, or emits that one. match says whether a match follows x.
func (j *joiner) put(x section, match bool) error {
	var joins bool
	switch j.how {
	case contiguous:
		joins, j.before = x.match == j.before, x.match
	case mergedWithPrevious:
		joins, j.before = x.match && !j.before, x.match
	case mergedWithNext: // a match joins what follows it, unless that is a match too
		joins, j.before = j.before && !x.match, x.match && !match
	}
	if j.held && joins {
		j.out.end = x.end
		return nil
	}
	last, emit := j.out, j.held
	j.out, j.held = x, true
	if emit {
		return j.emit(last)
	}
	return nil
}

// end emits the rest of the text.
func (j *joiner) end() error {
	if j.queued {
		if err := j.put(j.next, false); err != nil {
			return err
		}
	}
	if j.held {
		return j.emit(j.out)
	}
	return nil
}
