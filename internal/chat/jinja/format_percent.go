package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// subscriptable reports whether v may be left unused, because Python treats it as a mapping.
func subscriptable(v Value) bool {
	switch v.(type) {
	case *Dict, *List, *rangeValue, *undefined:
		return true
	}
	return false
}

// formatPercent returns `s % v`, Python's printf. v is a tuple of values, a mapping for
// `%(key)s`, or a single value. On Markup, text arguments are escaped.
func formatPercent(st *state, of Value, s string, v Value) (Value, error) {
	p := percent{st: st, values: []Value{v}, single: true}
	if t, ok := v.(*Tuple); ok {
		p.values, p.single = t.Items, false
	}
	_, p.escape = of.(markup)
	p.mapping, _ = v.(*Dict)
	for s != "" {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			break
		}
		p.b.WriteString(s[:i])
		rest, err := p.directive(s[i+1:])
		if err != nil {
			return nil, err
		}
		s = rest
		if p.b.Len() > st.limits.Output {
			break
		}
	}
	p.b.WriteString(s)
	if p.used < len(p.values) && !(p.single && subscriptable(v)) {
		return nil, typeErrorf("not all arguments converted during string formatting")
	}
	return made(st, of, p.b.String())
}

type percent struct {
	st      *state
	values  []Value
	single  bool
	mapping *Dict
	used    int
	escape  bool
	b       strings.Builder
}

func (p *percent) next() (Value, error) {
	if p.used >= len(p.values) {
		return nil, typeErrorf("not enough arguments for format string")
	}
	p.used++
	return p.values[p.used-1], nil
}

// directive reads one conversion after its % and writes it; it returns what
// follows.
func (p *percent) directive(s string) (rest string, err error) {
	var key Value = missing
	if strings.HasPrefix(s, "(") {
		end := closing(s)
		if end < 0 {
			return "", typeErrorf("incomplete format key")
		}
		if p.mapping == nil {
			return "", typeErrorf("format requires a mapping")
		}
		key, s = s[1:end], s[end+1:]
	}
	f := spec{fill: " ", precision: -1}
	flags := len(s) - len(strings.TrimLeft(s, "-+ #0"))
	f.flags(s[:flags])
	s = s[flags:]
	if f.width, s, err = p.size(s); err != nil {
		return "", err
	}
	if f.width < 0 {
		f.align, f.width = "<", -f.width
	}
	if strings.HasPrefix(s, ".") {
		if f.precision, s, err = p.size(s[1:]); err != nil {
			return "", err
		}
		f.precision = max(f.precision, 0)
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		return "", typeErrorf("incomplete format")
	}
	c, n := utf8.DecodeRuneInString(s)
	if c == '%' {
		p.b.WriteByte('%')
		return s[n:], nil
	}
	var v Value
	if key != missing {
		i, ok := p.mapping.get(key)
		if !ok {
			return "", typeErrorf("KeyError: %s", quote(key.(string)))
		}
		v = i
	} else if v, err = p.next(); err != nil {
		return "", err
	}
	out, err := p.convert(c, v, f)
	p.b.WriteString(out)
	return s[n:], err
}

// closing returns the place of the parenthesis that closes the one at the start of s.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// size reads a number or `*`, which takes the next value.
func (p *percent) size(s string) (n int, rest string, err error) {
	if after, ok := strings.CutPrefix(s, "*"); ok {
		v, err := p.next()
		if err != nil {
			return 0, "", err
		}
		i, err := intArg(v, 0)
		if err == nil && (i > 1<<20 || i < -1<<20) {
			err = typeErrorf("width too big")
		}
		return int(i), after, err
	}
	return readSize(s)
}

func readSize(s string) (n int, rest string, err error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	if digits == 0 {
		return 0, s, nil
	}
	n, err = strconv.Atoi(s[:digits])
	if err != nil || n > 1<<20 {
		return 0, "", typeErrorf("width or precision too big")
	}
	return n, s[digits:], nil
}

// convert formats v for the conversion letter c.
func (p *percent) convert(c rune, v Value, f spec) (string, error) {
	switch c {
	case 's', 'r', 'a':
		s, err := converted(p.st, v, c)
		if err != nil {
			return "", err
		}
		if _, isMarkup := v.(markup); p.escape && !isMarkup {
			s = escapeHTML(s)
		}
		f.zero = false
		return f.text(p.st, s, ">")
	case 'c':
		s, ok := text(v)
		if i, isInt := integer(v); isInt && i >= 0 && i <= utf8.MaxRune {
			s, ok = string(rune(i)), true
		}
		if !ok || utf8.RuneCountInString(s) != 1 {
			return "", typeErrorf("%%c requires int or char")
		}
		return f.text(p.st, s, ">")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return p.convertInt(c, v, f)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		if u, ok := v.(*undefined); ok {
			return "", u.err()
		}
		g, ok := number(v)
		if !ok {
			return "", typeErrorf("must be real number, not %s", typeName(v))
		}
		f.kind = byte(c)
		return f.float(p.st, g)
	}
	return "", typeErrorf("unsupported format character %s", quote(string(c)))
}

func (p *percent) convertInt(c rune, v Value, f spec) (string, error) {
	if u, ok := v.(*undefined); ok {
		return "", u.err()
	}
	if g, ok := v.(float64); ok && strings.ContainsRune("diu", c) {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return "", typeErrorf("cannot convert float infinity or NaN to integer")
		}
		n, _ := big.NewFloat(math.Trunc(g)).Int(nil)
		v = small(n)
	}
	f.kind = byte(c)
	if f.kind == 'i' || f.kind == 'u' {
		f.kind = 'd'
	}
	n, ok := bigInt(v)
	if !ok {
		return "", typeErrorf("%%%c format: a real number is required, not %s", c, typeName(v))
	}
	f.digits, f.precision = f.precision, -1
	return f.int(p.st, n)
}

// bigInt returns an int of any size.
func bigInt(v Value) (*big.Int, bool) {
	if n, ok := v.(*big.Int); ok {
		return n, true
	}
	i, ok := integer(v)
	return big.NewInt(i), ok
}

// small returns n as an int64 if it fits.
func small(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}
