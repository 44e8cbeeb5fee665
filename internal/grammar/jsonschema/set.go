package jsonschema

import (
	"math/big"
	"slices"
)

// set is a set of allowed values: for each JSON type the alternatives.
type set struct {
	null, yes, no bool
	numbers       []*number
	strings       []*str
	arrays        []*array
	objects       []*record
}

// number is a set of numbers.
type number struct {
	integer  bool
	min, max *limit // nil: none
	multiple []*big.Rat
	texts    []string // if not nil, the only ones
	not      []*number
	listed   map[string]bool // the values of texts in lowest terms, once lists has been asked
}

type limit struct {
	v      *big.Rat
	strict bool
}

// str is a set of strings.
type str struct {
	texts    []string // if not nil, the only ones
	min, max int      // characters; max < 0: any number
	patterns []place
	formats  []place
	not      []*str
}

// place is a text of the schema with its path.
type place struct{ text, path string }

// array is a set of arrays that satisfy all layers.
type array struct {
	min, max int // max < 0: any number
	layers   []arrayLayer
	unique   string // the path of uniqueItems; "" without
	contains []contains
}

// arrayLayer gives the schemas of items.
type arrayLayer struct {
	prefix []conj
	items  conj
}

// contains limits the number of items that satisfy a schema.
type contains struct {
	c        conj
	min, max int
	path     string
}

// item returns the schema of item i.
func (a *array) item(i int) conj {
	var k conj
	for _, l := range a.layers {
		if i < len(l.prefix) {
			k = and(k, l.prefix[i])
		} else {
			k = and(k, l.items)
		}
	}
	return k
}

// prefix returns the number of items that may have their own schemas.
func (a *array) prefix() int {
	n := 0
	for _, l := range a.layers {
		n = max(n, len(l.prefix))
	}
	return n
}

// record is a set of objects that satisfy all layers.
type record struct {
	min, max int // properties; max < 0: any number
	required []string
	layers   []recordLayer
	names    conj   // of all properties
	minPath  string // of minProperties
}

// recordLayer gives the schemas of properties.
type recordLayer struct {
	names    []string // in order
	props    map[string]conj
	patterns []pattern
	others   conj
	all      bool // others is given: the layer concerns all properties
	path     string
}

type pattern struct {
	place
	c conj
}

var anySet = &set{null: true, yes: true, no: true,
	numbers: []*number{{}}, strings: []*str{{max: -1}}, arrays: []*array{{max: -1}}, objects: []*record{{max: -1}}}

func (s *set) empty() bool {
	return !s.null && !s.yes && !s.no && len(s.numbers)+len(s.strings)+len(s.arrays)+len(s.objects) == 0
}

// small reports whether s is compiled inline instead of as a rule.
func (s *set) small() bool {
	return len(s.arrays)+len(s.objects) == 0 && len(s.strings)+len(s.numbers) <= 2
}

// maxAlternatives bounds the alternatives of a type.
const maxAlternatives = 4096

// union adds the values of t to s.
func (s *set) union(t *set) {
	s.null, s.yes, s.no = s.null || t.null, s.yes || t.yes, s.no || t.no
	s.numbers = append(s.numbers, t.numbers...)
	s.strings = append(s.strings, t.strings...)
	s.arrays = append(s.arrays, t.arrays...)
	s.objects = append(s.objects, t.objects...)
}

// intersect returns the values that both allow. ok is false if there are too many alternatives.
func intersect(a, b *set) (s *set, ok bool) {
	s = &set{null: a.null && b.null, yes: a.yes && b.yes, no: a.no && b.no}
	most := max(len(a.numbers)*len(b.numbers), len(a.strings)*len(b.strings), len(a.arrays)*len(b.arrays), len(a.objects)*len(b.objects))
	if most > maxAlternatives {
		return nil, false
	}
	for _, x := range a.numbers {
		for _, y := range b.numbers {
			if n := x.and(y); n != nil {
				s.numbers = append(s.numbers, n)
			}
		}
	}
	for _, x := range a.strings {
		for _, y := range b.strings {
			if n := x.and(y); n != nil {
				s.strings = append(s.strings, n)
			}
		}
	}
	for _, x := range a.arrays {
		for _, y := range b.arrays {
			if n := x.and(y); n != nil {
				s.arrays = append(s.arrays, n)
			}
		}
	}
	for _, x := range a.objects {
		for _, y := range b.objects {
			if n := x.and(y); n != nil {
				s.objects = append(s.objects, n)
			}
		}
	}
	return s, true
}

// meeting returns the steps that intersect takes: those of each pair of alternatives, and of what
// they list.
func meeting(a, b *set) int {
	pairs := 1 + len(a.numbers)*len(b.numbers) + len(a.strings)*len(b.strings) + len(a.arrays)*len(b.arrays) + len(a.objects)*len(b.objects)
	texts, checks := numbersListed(a.numbers, len(b.numbers))
	moreTexts, moreChecks := numbersListed(b.numbers, len(a.numbers))
	names := recordsListed(a.objects, len(b.objects)) + recordsListed(b.objects, len(a.objects))
	return 500*pairs + 200*(texts+moreTexts)*(1+checks+moreChecks) + 20*names
}

// numbersListed counts what n numbers that meet each of list read: the texts, and the most that one
// text is compared with.
func numbersListed(list []*number, n int) (texts, checks int) {
	for _, x := range list {
		texts += n * (len(x.texts) + (len(x.multiple)+len(x.not))/8) // which are copied
		checks = max(checks, len(x.multiple)+len(x.not))
	}
	return texts, checks
}

// recordsListed counts what n records that meet each of list copy.
func recordsListed(list []*record, n int) (names int) {
	for _, x := range list {
		names += n * (len(x.required) + len(x.layers))
	}
	return names
}

// both returns the stricter of two upper limits. A negative limit means none.
func both(a, b int) int {
	if a < 0 {
		return b
	}
	if b < 0 {
		return a
	}
	return min(a, b)
}

func (n *number) and(m *number) *number {
	out := &number{integer: n.integer || m.integer, min: stricter(n.min, m.min, 1), max: stricter(n.max, m.max, -1),
		multiple: append(slices.Clone(n.multiple), m.multiple...), not: append(slices.Clone(n.not), m.not...)}
	if n.texts != nil || m.texts != nil {
		var list []string
		known := make(map[string]bool, len(n.texts)+len(m.texts))
		for _, t := range append(slices.Clone(n.texts), m.texts...) {
			if !known[t] && n.has(t) && m.has(t) {
				list = append(list, t)
			}
			known[t] = true
		}
		if list == nil {
			return nil
		}
		return &number{texts: list}
	}
	if out.min != nil && out.max != nil {
		if c := out.min.v.Cmp(out.max.v); c > 0 || c == 0 && (out.min.strict || out.max.strict) {
			return nil
		}
	}
	return out
}

func stricter(a, b *limit, sign int) *limit {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	c := a.v.Cmp(b.v) * sign
	if c > 0 || c == 0 && a.strict {
		return a
	}
	return b
}

// has reports whether the number that text writes is one of n.
func (n *number) has(text string) bool {
	v, ok := new(big.Rat).SetString(text)
	switch {
	case !ok, n.integer && !v.IsInt():
		return false
	case n.min != nil && (v.Cmp(n.min.v) < 0 || v.Cmp(n.min.v) == 0 && n.min.strict):
		return false
	case n.max != nil && (v.Cmp(n.max.v) > 0 || v.Cmp(n.max.v) == 0 && n.max.strict):
		return false
	}
	for _, m := range n.multiple {
		if !new(big.Rat).Quo(v, m).IsInt() {
			return false
		}
	}
	for _, m := range n.not {
		if m.has(text) {
			return false
		}
	}
	return n.texts == nil || n.lists(v)
}

// lists reports whether one of the texts of n writes v.
func (n *number) lists(v *big.Rat) bool {
	if n.listed == nil {
		n.listed = make(map[string]bool, len(n.texts))
		for _, t := range n.texts {
			w, _ := new(big.Rat).SetString(t)
			n.listed[w.RatString()] = true
		}
	}
	return n.listed[v.RatString()]
}

func (s *str) and(t *str) *str {
	out := &str{min: max(s.min, t.min), max: both(s.max, t.max), patterns: merge(s.patterns, t.patterns), formats: merge(s.formats, t.formats),
		not: append(slices.Clone(s.not), t.not...)}
	switch {
	case s.texts == nil:
		out.texts = t.texts
	case t.texts == nil:
		out.texts = s.texts
	default:
		known := make(map[string]bool, len(t.texts))
		for _, x := range t.texts {
			known[x] = true
		}
		out.texts = []string{}
		for _, x := range s.texts {
			if known[x] {
				out.texts = append(out.texts, x)
			}
		}
	}
	if out.max >= 0 && out.min > out.max || out.texts != nil && len(out.texts) == 0 {
		return nil
	}
	return out
}

// merge joins lists without repeating a text.
func merge(a, b []place) []place {
	out := slices.Clone(a)
	for _, p := range b {
		if !slices.ContainsFunc(a, func(q place) bool { return q.text == p.text }) {
			out = append(out, p)
		}
	}
	return out
}

func (a *array) and(b *array) *array {
	out := &array{min: max(a.min, b.min), max: both(a.max, b.max), unique: a.unique}
	if out.unique == "" {
		out.unique = b.unique
	}
	out.layers = append(slices.Clone(a.layers), b.layers...)
	out.contains = append(slices.Clone(a.contains), b.contains...)
	if out.max >= 0 && out.min > out.max {
		return nil
	}
	return out
}

func (r *record) and(t *record) *record {
	out := &record{min: max(r.min, t.min), max: both(r.max, t.max), names: and(r.names, t.names), minPath: r.minPath}
	if t.min > r.min {
		out.minPath = t.minPath
	}
	out.layers = append(slices.Clone(r.layers), t.layers...)
	out.required = slices.Clone(r.required)
	known := make(map[string]bool, len(r.required))
	for _, name := range r.required {
		known[name] = true
	}
	for _, name := range t.required { // they do not repeat
		if !known[name] {
			out.required = append(out.required, name)
		}
	}
	if out.max >= 0 && max(out.min, len(out.required)) > out.max {
		return nil
	}
	return out
}
