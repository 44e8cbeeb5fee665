package jsonschema

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/regex"
	"github.com/heftai/heft/internal/layout"
)

// strTerminal returns the terminal of the strings of t. All grammars share it.
func (c *compiler) strTerminal(t *str, path string) (*grammar.Terminal, error) {
	least, most := t.min, t.max
	for _, f := range t.formats {
		if n := formats[f.text].most; n > 0 {
			most = both(most, n)
		}
	}
	bare := len(t.patterns)+len(t.formats)+len(t.not) == 0
	if t.texts == nil && bare {
		plain, err := c.anyString()
		if err != nil {
			return nil, err
		}
		if least == 0 && most < 0 {
			return plain, nil
		}
		if counted, ok := plain.Counted(least, most); ok {
			return counted, nil
		}
	}
	if t.texts == nil && len(t.not) == 0 && c.kind() != layout.Tags {
		open := *t
		open.min, open.max = 0, -1
		term, err := c.terminal(&open, path)
		if err != nil {
			return nil, err
		}
		if least == 0 && most < 0 || term.DFA().IsEmpty() {
			return term, nil
		}
		if counted, ok := term.Counted(least, most); ok {
			return counted, nil
		}
	}
	whole := &str{texts: t.texts, min: least, max: most, patterns: t.patterns, formats: t.formats, not: t.not}
	key, stops := "string "+whole.key(), []string(nil)
	if c.kind() == layout.Tags {
		stops = c.layout.stops()
		key += fmt.Sprintf(" without %q", stops)
	}
	return c.b.Library().Shared(key, func() (*dfa.DFA, error) {
		d, err := c.strDFA(whole, path)
		if err == nil {
			d, err = without(stops, d, c.b.Budget)
		}
		return d, err
	})
}

// counted returns a position that reads the strings of t, then next, if t is one pattern whose
// automaton would be large, and whose repetitions can be counted instead.
func (c *compiler) counted(t *str, next grammar.Pos) (at grammar.Pos, ok bool) {
	if len(t.patterns) != 1 || len(t.formats)+len(t.not) > 0 || t.texts != nil || c.kind() == layout.Tags {
		return grammar.Fail, false
	}
	pattern := t.patterns[0]
	_, err := regex.Cheap(c.b.Budget, func(small *dfa.Budget) (*dfa.DFA, error) { return c.patternWithin(pattern, small) })
	if err == nil {
		return grammar.Fail, false
	}
	return regex.AppendQuoted(c.b, pattern.text, jsontext.Char, t.min, t.max, next)
}

// key returns a key that identifies the set of strings.
func (t *str) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %t %d %d", t.texts, t.texts == nil, t.min, t.max)
	for _, p := range t.patterns {
		fmt.Fprintf(&b, " p%q", p.text)
	}
	for _, f := range t.formats {
		fmt.Fprintf(&b, " f%q", f.text)
	}
	for _, n := range t.not {
		fmt.Fprintf(&b, " not(%s)", n.key())
	}
	return b.String()
}

// anyString returns the terminal of all strings. In layouts it matches their shortest spelling,
// which more readers support.
func (c *compiler) anyString() (*grammar.Terminal, error) {
	switch c.kind() {
	case 0:
		return c.b.Library().Named("string", jsontext.String), nil
	case layout.Tags:
		short, stops := c.short(), c.layout.stops()
		return c.b.Library().NamedDFA(fmt.Sprintf("string without %q", stops), func(b *dfa.Budget) (*dfa.DFA, error) {
			return without(stops, short, b)
		}), nil
	}
	return c.b.Library().Named("key", jsontext.Short), nil
}

// terminal returns the terminal of strings of any length.
func (c *compiler) terminal(t *str, path string) (*grammar.Terminal, error) {
	if len(t.formats) == 1 && len(t.patterns) == 0 {
		c.formatDFA(t.formats[0].text)
		return c.b.Library().NamedDFA("format "+t.formats[0].text, nil), nil
	}
	return c.b.Library().Shared("string "+t.key(), func() (*dfa.DFA, error) { return c.strDFA(t, path) })
}

// strDFA returns the automaton of the strings of t in their shortest spelling. It does not limit
// the length of a format.
func (c *compiler) strDFA(t *str, path string) (*dfa.DFA, error) {
	if d := c.dfas[t]; d != nil {
		return d, nil
	}
	budget := c.b.Budget
	var parts []*dfa.DFA
	for _, p := range t.patterns {
		d, err := c.patternDFA(p)
		if err != nil {
			return nil, err
		}
		parts = append(parts, d)
	}
	for _, f := range t.formats {
		parts = append(parts, c.formatDFA(f.text))
	}
	if t.texts != nil {
		var alts []*dfa.Expr
		for _, text := range t.texts {
			if t.admits(text, parts) {
				for _, s := range jsontext.Spellings(text) {
					alts = append(alts, dfa.Literal(s))
				}
			}
		}
		d, err := dfa.Compile(dfa.Alt(alts...), budget)
		if err != nil {
			return nil, err
		}
		parts = []*dfa.DFA{d}
	} else if t.min > 0 || t.max >= 0 {
		d, err := dfa.Compile(jsontext.Lengths(t.min, t.max), budget)
		if err != nil {
			return nil, fail(path, "the lengths %d to %d are too large together with a pattern or a format", t.min, t.max)
		}
		parts = append(parts, d)
	}
	if len(parts) == 0 {
		parts = append(parts, c.short())
	}
	d, err := c.combine(parts, t.not, path)
	if err == nil {
		c.dfas[t] = d
	}
	return d, err
}

// combine intersects automata and subtracts strings.
func (c *compiler) combine(parts []*dfa.DFA, not []*str, path string) (*dfa.DFA, error) {
	d := parts[0]
	var err error
	for _, p := range parts[1:] {
		if d, err = dfa.Intersect(d, p, c.b.Budget); err != nil {
			return nil, err
		}
	}
	for _, n := range not {
		minus, err := c.strDFA(n, path)
		if err != nil {
			return nil, err
		}
		if d, err = dfa.Subtract(d, minus, c.b.Budget); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// short returns the automaton of all strings in their shortest spelling.
func (c *compiler) short() *dfa.DFA { return c.b.Library().Named("key", jsontext.Short).DFA() }

func patternError(p place, err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "regex: "); ok {
		return fail(p.path, "the pattern %q cannot be used: %s", p.text, text)
	}
	return fail(p.path, "the pattern %q is too large or too complex", p.text)
}

// admits reports whether a text has an allowed length and matches the parts of t.
func (t *str) admits(text string, parts []*dfa.DFA) bool {
	n := len([]rune(text))
	for _, f := range t.formats {
		if most := formats[f.text].most; most > 0 && n > most {
			return false
		}
	}
	if n < t.min || t.max >= 0 && n > t.max {
		return false
	}
	quoted := jsontext.Quote(text)
	for _, d := range parts {
		if !d.Match(quoted) {
			return false
		}
	}
	return true
}

// numberTerminal returns the terminal of the numbers of n.
func (c *compiler) numberTerminal(n *number, path string) (*grammar.Terminal, error) {
	lib := c.b.Library()
	plain := *n
	plain.integer = false
	switch {
	case n.free():
		return lib.Named("number", jsontext.Number), nil
	case plain.free():
		return lib.Named("integer", jsontext.Integer), nil
	}
	key := "number " + n.key()
	if !n.simple() {
		return lib.Shared(key, func() (*dfa.DFA, error) { return c.numberDFA(n, path) })
	}
	alone := &number{integer: n.integer, min: n.min, max: n.max} // without c, which it outlives
	return lib.Late(key, func() *dfa.DFA {
		own := &compiler{b: grammar.NewBuilder(lib)}
		d, err := own.numberDFA(alone, path)
		if err != nil {
			panic(fmt.Sprintf("jsonschema: %s: %v", key, err)) // simple has excluded errors
		}
		return d
	}), nil
}

// mostDigits is the maximum length of the limits of simple numbers.
const mostDigits = 32

// simple reports whether n only has limits, with few digits and numbers between them. Its automaton
// can then be made later.
func (n *number) simple() bool {
	if n.texts != nil || len(n.multiple)+len(n.not) > 0 {
		return false
	}
	for _, l := range []*limit{n.min, n.max} {
		if l == nil {
			continue
		}
		if b, ok := boundOf(l); !ok || len(b.Integer)+len(b.Fract) > mostDigits {
			return false
		}
	}
	if n.min == nil || n.max == nil {
		return true
	}
	order := n.min.v.Cmp(n.max.v)
	if !n.integer {
		return order < 0 || order == 0 && !n.min.strict && !n.max.strict
	}
	low, high := whole(n.min, 1), whole(n.max, -1)
	return low.Cmp(high) <= 0
}

// whole returns the integer within a limit that is nearest to it. step is 1 for a lower limit and
// -1 for an upper one.
func whole(l *limit, step int64) *big.Int {
	n := new(big.Int).Div(l.v.Num(), l.v.Denom()) // rounded down, as the denominator is positive
	switch {
	case l.v.IsInt() && l.strict:
		n.Add(n, big.NewInt(step))
	case !l.v.IsInt() && step > 0:
		n.Add(n, big.NewInt(1))
	}
	return n
}

// key returns a key that identifies the set of numbers.
func (n *number) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t %q %t", n.integer, n.texts, n.texts == nil)
	for _, l := range []*limit{n.min, n.max} {
		if l == nil {
			b.WriteString(" -")
			continue
		}
		fmt.Fprintf(&b, " %s %t", l.v.RatString(), l.strict)
	}
	for _, m := range n.multiple {
		fmt.Fprintf(&b, " /%s", m.RatString())
	}
	for _, m := range n.not {
		fmt.Fprintf(&b, " not(%s)", m.key())
	}
	return b.String()
}

// numberDFA returns the automaton of the numbers of n. Restricted numbers have no exponent.
func (c *compiler) numberDFA(n *number, path string) (*dfa.DFA, error) {
	budget := c.b.Budget
	if n.texts != nil {
		var alts []*dfa.Expr
		for _, t := range n.texts {
			alts = append(alts, dfa.Literal(t))
		}
		return dfa.Compile(dfa.Alt(alts...), budget)
	}
	d := c.b.Library().Named("decimal", jsontext.Decimal).DFA()
	if n.integer {
		d = c.b.Library().Named("integer", jsontext.Integer).DFA()
	}
	var err error
	narrow := func(e *dfa.Expr) {
		var other *dfa.DFA
		if err != nil {
			return
		}
		if other, err = dfa.Compile(e, budget); err == nil {
			d, err = dfa.Intersect(d, other, budget)
		}
	}
	for _, l := range []struct {
		limit *limit
		expr  func(jsontext.Bound) *dfa.Expr
	}{{n.min, jsontext.AtLeast}, {n.max, jsontext.AtMost}} {
		if l.limit == nil {
			continue
		}
		b, ok := boundOf(l.limit)
		if !ok {
			return nil, fail(path, "a limit of numbers has too many digits")
		}
		narrow(l.expr(b))
	}
	for _, m := range n.multiple {
		if err != nil {
			return nil, err
		}
		other, e := multiples(m, budget)
		if e != nil {
			return nil, fail(join(path, "multipleOf"), "%s is too large", m.RatString())
		}
		d, err = dfa.Intersect(d, other, budget)
	}
	for _, m := range n.not {
		if err != nil {
			return nil, err
		}
		d, err = c.subtractNumber(d, m, path)
	}
	return d, err
}

// subtractNumber subtracts the numbers of m from d, in all their spellings without an exponent.
func (c *compiler) subtractNumber(d *dfa.DFA, m *number, path string) (*dfa.DFA, error) {
	list := []*number{m}
	if m.texts != nil {
		list = nil
		for _, t := range m.texts {
			v, _ := new(big.Rat).SetString(t)
			list = append(list, &number{min: &limit{v: v}, max: &limit{v: v}})
		}
	}
	for _, one := range list {
		if one.integer { // with and without a fraction of zeros
			one = &number{min: one.min, max: one.max, not: one.not, multiple: append([]*big.Rat{big.NewRat(1, 1)}, one.multiple...)}
		}
		minus, err := c.numberDFA(one, path)
		if err != nil {
			return nil, err
		}
		if d, err = dfa.Subtract(d, minus, c.b.Budget); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func boundOf(l *limit) (b jsontext.Bound, ok bool) {
	text, ok := decimal(new(big.Rat).Abs(l.v))
	b.Integer, b.Fract, _ = strings.Cut(text, ".")
	b.Integer, b.Fract = strings.TrimLeft(b.Integer, "0"), strings.TrimRight(b.Fract, "0")
	b.Negative, b.Strict = l.v.Sign() < 0, l.strict
	return b, ok
}

// places of a number.
type numberPart uint8

const (
	atSign numberPart = iota
	atFirst
	inZero
	inInteger
	atPoint
	inFraction
)

type multipleState struct {
	at   numberPart
	rem  uint32 // of the digits so far
	frac uint8  // digits of the fraction
}

// multiples returns the automaton of the multiples of m.
func multiples(m *big.Rat, budget *dfa.Budget) (*dfa.DFA, error) {
	const mostPlaces, mostMultiple = 18, 1 << 16
	places := 0
	scaled, ten := new(big.Rat).Set(m), big.NewRat(10, 1)
	for !scaled.IsInt() && places < mostPlaces {
		scaled.Mul(scaled, ten)
		places++
	}
	if !scaled.IsInt() || scaled.Num().Cmp(big.NewInt(mostMultiple)) > 0 {
		return nil, dfa.ErrTooLarge
	}
	p := uint32(scaled.Num().Uint64())
	step := func(s multipleState, b byte) (multipleState, bool) {
		isDigit := b >= '0' && b <= '9'
		next := s
		if isDigit {
			next.rem = (s.rem*10 + uint32(b-'0')) % p
		}
		switch {
		case b == '-':
			next.at = atFirst
			return next, s.at == atSign
		case b == '.':
			next.at = atPoint
			return next, (s.at == inZero || s.at == inInteger) && places > 0
		case s.at <= atFirst:
			next.at = inInteger
			if b == '0' {
				next.at = inZero
			}
			return next, true
		case s.at == inInteger:
			return next, true
		case s.at == atPoint || s.at == inFraction:
			next.at = inFraction
			next.frac++
			return next, int(s.frac) < places
		}
		return s, false
	}
	accepts := func(s multipleState) bool {
		rem := uint64(s.rem)
		for range places - int(s.frac) {
			rem = rem * 10 % uint64(p)
		}
		return rem == 0 && (s.at == inZero || s.at == inInteger || s.at == inFraction)
	}
	return dfa.Build(multipleState{}, "-.0123456789", step, accepts, budget)
}
