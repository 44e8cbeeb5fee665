package jinja

import (
	"strings"
	"time"
)

// Template is a parsed template. It holds no state of a rendering, so any number
// of goroutines may render it at once.
type Template struct {
	main   *blockFunc
	blocks map[string]*blockFunc
	source string
}

// Parse reads a template. The error is an [Error] of [KindSyntax] with its line.
func Parse(source string) (*Template, error) {
	body, err := parse(source)
	if err != nil {
		return nil, err
	}
	t, err := compileTemplate(body)
	if err != nil {
		return nil, err
	}
	t.source = source
	return t, nil
}

// Source returns the text the template was parsed from.
func (t *Template) Source() string { return t.source }

// Render runs the template with vars, whose keys are its variables. now is what
// strftime_now shows; it is printed in its own location. The error is an [Error].
func (t *Template) Render(vars *Dict, now time.Time, limits Limits) (string, error) {
	text, _, err := t.RenderGenerations(vars, now, limits)
	return text, err
}

// RenderGenerations is [Template.Render] that also returns the half-open byte ranges of the text
// that generation blocks wrote, in order. They are nil if a block ran inside a macro or another
// captured text, whose place in the result is not known.
func (t *Template) RenderGenerations(vars *Dict, now time.Time, limits Limits) (string, [][2]int, error) {
	st := &state{
		limits: limits.withDefaults(),
		now:    now,
		out:    &strings.Builder{},
		vars:   vars,
		set:    map[string]Value{},
		blocks: t.blocks,
	}
	st.root = st.out
	if err := t.main.run(st); err != nil {
		return "", nil, err
	}
	if st.displaced {
		st.generations = nil
	}
	return st.out.String(), st.generations, nil
}
