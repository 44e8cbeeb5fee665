package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is Python's format specification:
// [[fill]align][sign][#][0][width][grouping][.precision][type].
type spec struct {
	fill      string
	align     string // "<", ">", "^", "=", or "" for the type's own
	sign      string // "+", " ", or ""
	alternate bool
	zero      bool
	width     int
	group     string // "," or "_"
	precision int    // -1 if not given
	digits    int    // least digits of an int (printf only)
	kind      byte   // 0 if not given
}

// flags reads printf's flags.
func (f *spec) flags(s string) {
	for _, c := range s {
		switch c {
		case '-':
			f.align = "<"
		case '+':
			f.sign = "+"
		case ' ':
			if f.sign == "" {
				f.sign = " "
			}
		case '#':
			f.alternate = true
		case '0':
			f.zero = true
		}
	}
	if f.align == "<" {
		f.zero = false
	}
}

func parseSpec(s string) (spec, error) {
	f := spec{fill: " ", precision: -1}
	_, n := utf8.DecodeRuneInString(s)
	switch {
	case n > 0 && len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0:
		f.fill, f.align, s = s[:n], s[n:n+1], s[n+1:]
	case s != "" && strings.IndexByte("<>=^", s[0]) >= 0:
		f.align, s = s[:1], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		f.sign, s = strings.Trim(s[:1], "-"), s[1:]
	}
	if after, ok := strings.CutPrefix(s, "#"); ok {
		f.alternate, s = true, after
	}
	if after, ok := strings.CutPrefix(s, "0"); ok {
		f.zero, s = true, after
	}
	var err error
	if f.width, s, err = readSize(s); err != nil {
		return f, err
	}
	if s != "" && (s[0] == ',' || s[0] == '_') {
		f.group, s = s[:1], s[1:]
	}
	if after, ok := strings.CutPrefix(s, "."); ok {
		before := len(after)
		if f.precision, s, err = readSize(after); err == nil && len(s) == before {
			err = typeErrorf("Format specifier missing precision")
		}
		if err != nil {
			return f, err
		}
	}
	if len(s) > 1 {
		return f, typeErrorf("Invalid format specifier")
	}
	if s != "" {
		f.kind = s[0]
	}
	return f, nil
}

// formatValue returns format(v, s).
func formatValue(st *state, v Value, s string) (string, error) {
	if s == "" {
		return str(st, v)
	}
	f, err := parseSpec(s)
	if err != nil {
		return "", err
	}
	bad := typeErrorf("Unknown format code for object of type '%s'", typeName(v))
	if t, ok := text(v); ok {
		if f.kind != 0 && f.kind != 's' || f.sign != "" || f.align == "=" || f.alternate || f.group != "" {
			return "", bad
		}
		if f.zero && f.align == "" {
			f.fill = "0"
		}
		f.zero = false
		return f.text(st, t, "<")
	}
	if n, ok := bigInt(v); ok {
		if f.kind == 0 || strings.IndexByte("dnbcoxX", f.kind) >= 0 {
			if f.precision >= 0 {
				return "", typeErrorf("Precision not allowed in integer format specifier")
			}
			return f.int(st, n)
		}
	}
	if g, ok := number(v); ok {
		if f.kind != 0 && strings.IndexByte("eEfFgGn%", f.kind) < 0 {
			return "", bad
		}
		return f.float(st, g)
	}
	return "", typeErrorf("unsupported format string passed to %s.__format__", typeName(v))
}

// text cuts to the precision and pads.
func (f spec) text(st *state, s, align string) (string, error) {
	if f.precision >= 0 {
		if n := utf8.RuneCountInString(s); n > f.precision {
			s = s[:runeOffset(s, f.precision, n)]
		}
	}
	return f.pad(st, "", s, align)
}

// pad fills to the width; with "=" or zeros the fill goes behind the prefix.
func (f spec) pad(st *state, prefix, s, align string) (string, error) {
	fill := f.fill
	if f.align != "" {
		align = f.align
	}
	if f.zero {
		if f.align == "" {
			align = "="
		}
		if f.fill == " " {
			fill = "0"
		}
	}
	if align == "=" {
		body, err := pad(st, s, fill, int64(f.width-utf8.RuneCountInString(prefix)), leftSide)
		return prefix + body, err
	}
	s = prefix + s
	n := f.width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s, nil
	}
	if err := st.grow(len(s) + n*len(fill)); err != nil {
		return "", err
	}
	before := 0
	switch align {
	case ">":
		before = n
	case "^":
		before = n / 2
	}
	return strings.Repeat(fill, before) + s + strings.Repeat(fill, n-before), nil
}

// signOf returns the sign to print before a number.
func (f spec) signOf(negative bool) string {
	if negative {
		return "-"
	}
	return f.sign
}

func (f spec) int(st *state, n *big.Int) (string, error) {
	base, mark := 10, ""
	switch f.kind {
	case 'b':
		base, mark = 2, "0b"
	case 'o':
		base, mark = 8, "0o"
	case 'x':
		base, mark = 16, "0x"
	case 'X':
		base, mark = 16, "0X"
	case 'c':
		if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
			return "", typeErrorf("%%c arg not in range")
		}
		return f.pad(st, "", string(rune(n.Int64())), "<")
	}
	digits := new(big.Int).Abs(n).Text(base)
	if f.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alternate {
		mark = ""
	}
	if k := f.digits - len(digits); k > 0 {
		digits = strings.Repeat("0", k) + digits
	}
	every := 3
	if base != 10 {
		every = 4
	}
	return f.pad(st, f.signOf(n.Sign() < 0)+mark, grouped(digits, f.group, every), ">")
}

// grouped puts sep between groups of digits, counted from the right.
func grouped(digits, sep string, every int) string {
	if sep == "" {
		return digits
	}
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%every == 0 {
			b.WriteString(sep)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func (f spec) float(st *state, g float64) (string, error) {
	sign := f.signOf(math.Signbit(g) && !math.IsNaN(g))
	g = math.Abs(g)
	kind, suffix := f.kind, ""
	if kind == '%' {
		kind, suffix, g = 'f', "%", g*100
	}
	if kind == 'n' {
		kind = 'g'
	}
	upper := kind >= 'A' && kind <= 'Z'
	precision := f.precision
	if precision < 0 && kind != 0 {
		precision = 6
	}
	var s string
	switch {
	case math.IsInf(g, 0):
		s = "inf"
	case math.IsNaN(g):
		s = "nan"
	case kind == 0 && precision < 0:
		s = floatRepr(g)
	case kind == 0:
		s = general(g, precision, f.alternate, 1)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
	case kind|0x20 == 'g':
		s = general(g, precision, f.alternate, 0)
	default:
		s = strconv.FormatFloat(g, kind|0x20, precision, 64)
		if precision == 0 && f.alternate {
			s += "."
		}
	}
	if upper {
		s = strings.ToUpper(s)
	}
	whole := len(s) - len(strings.TrimLeft(s, "0123456789"))
	s = grouped(s[:whole], f.group, 3) + s[whole:] + suffix
	return f.pad(st, sign, s, ">")
}

// general returns C's %g: precision significant digits, trailing zeros dropped unless
// keep; exponents from precision-less on are written as such.
func general(g float64, precision int, keep bool, less int) string {
	precision = max(precision, 1)
	sci := strconv.FormatFloat(g, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(sci, "e")
	exp, _ := strconv.Atoi(exponent)
	drop := func(s string) string {
		if keep || !strings.Contains(s, ".") {
			return s
		}
		return strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if exp < -4 || exp >= precision-less && g != 0 {
		return drop(mantissa) + "e" + exponent
	}
	return drop(strconv.FormatFloat(g, 'f', precision-1-exp, 64))
}
