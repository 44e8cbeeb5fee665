package jinja

import (
	"strings"
	"time"
)

// Limits bounds one rendering. A zero field means its default. Together they
// bound time (a step is some tens of nanoseconds) and memory.
type Limits struct {
	// Steps bounds the expressions and items that are evaluated. Long texts count one step per 16
	// bytes. Default 10 million.
	Steps int
	// Alloc bounds the bytes of all texts and list entries that are built, garbage included.
	// Default 512 MiB.
	Alloc int
	// Output bounds the size of a text in bytes, the result's or that of any string. Default 64
	// MiB.
	Output int
	// Depth bounds the nesting of calls of macros and recursive loops. Default 190, about Python's
	// own limit.
	Depth int
}

const (
	maxNesting  = 1000    // of values: printing, comparing, JSON
	maxTreeDeep = 500     // of expressions and statements in a template
	maxSource   = 1 << 20 // bytes of template
	callSteps   = 16      // steps that a macro call costs
	maxRange    = 100000  // items of range(), the sandbox's own bound
)

func (l Limits) withDefaults() Limits {
	set := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&l.Steps, 10_000_000)
	set(&l.Alloc, 512<<20)
	set(&l.Output, 64<<20)
	set(&l.Depth, 190)
	return l
}

// state belongs to one rendering.
type state struct {
	limits Limits
	steps  int
	alloc  int
	depth  int
	now    time.Time
	out    *strings.Builder
	escape bool             // an autoescape tag has turned escaping on
	vars   *Dict            // given by the caller
	set    map[string]Value // set at the template's top level, for blocks to see
	blocks map[string]*blockFunc

	root        *strings.Builder // the output that becomes the result
	generations [][2]int         // byte ranges of root that generation blocks wrote
	displaced   bool             // a generation block wrote to another output
}

// work counts n steps.
func (st *state) work(n int) error {
	st.steps += n
	if st.steps > st.limits.Steps {
		return failf(KindLimit, "the template takes more than %d steps", st.limits.Steps)
	}
	return nil
}

// grow counts a new text or sequence of n bytes, before it is built.
func (st *state) grow(n int) error {
	if n > st.limits.Output || n < 0 {
		return failf(KindLimit, "the template makes a text or list of more than %d bytes", st.limits.Output)
	}
	st.alloc += n
	if st.alloc > st.limits.Alloc {
		return failf(KindLimit, "the template takes more than %d bytes of memory", st.limits.Alloc)
	}
	return st.work(n / 16)
}

// growList counts a new sequence of n entries.
func (st *state) growList(n int) error {
	if n > st.limits.Output/16 {
		return st.grow(st.limits.Output + 1)
	}
	return st.grow(16 * n)
}

// enter counts one level of calls; the caller must leave when err is nil.
func (st *state) enter() error {
	if st.depth >= st.limits.Depth {
		return failf(KindLimit, "maximum recursion depth exceeded: more than %d calls deep", st.limits.Depth)
	}
	st.depth++
	return nil
}

func (st *state) leave() { st.depth-- }

// write appends to the output, within its limit.
func (st *state) write(s string) error {
	if st.out.Len()+len(s) > st.limits.Output {
		return failf(KindLimit, "the template writes more than %d bytes", st.limits.Output)
	}
	if err := st.grow(len(s)); err != nil {
		return err
	}
	st.out.WriteString(s)
	return nil
}

// capture runs f with a new output and returns the text that f wrote.
func (st *state) capture(f func() error) (string, error) {
	outer := st.out
	st.out = &strings.Builder{}
	err := f()
	text := st.out.String()
	st.out = outer
	return text, err
}
