package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str returns Python's str(v), what printing v writes.
func str(st *state, v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case markup:
		return string(v), nil
	case *undefined:
		return "", nil
	}
	return repr(st, v)
}

// repr returns Python's repr(v).
func repr(st *state, v Value) (string, error) {
	p := printer{st: st}
	if err := p.value(v, 0); err != nil {
		return "", err
	}
	return p.b.String(), st.grow(p.b.Len())
}

// converted returns str(v), repr(v) or ascii(v) for the conversions s, r and a of formats.
func converted(st *state, v Value, conversion rune) (string, error) {
	if conversion == 's' {
		return str(st, v)
	}
	s, err := repr(st, v)
	if conversion == 'r' || isASCII(s) || err != nil {
		return s, err
	}
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			writeEscape(&b, r)
		}
	}
	return b.String(), st.grow(b.Len())
}

type printer struct {
	st *state
	b  strings.Builder
}

func (p *printer) value(v Value, depth int) error {
	if depth > maxNesting {
		return failf(KindLimit, "maximum recursion depth exceeded while printing")
	}
	if p.b.Len() > p.st.limits.Output {
		return p.st.grow(p.b.Len())
	}
	if err := p.st.work(1); err != nil {
		return err
	}
	switch v := v.(type) {
	case *List:
		return p.items("[", v.Items, "]", depth)
	case *Tuple:
		if len(v.Items) == 1 {
			return p.items("(", v.Items, ",)", depth)
		}
		return p.items("(", v.Items, ")", depth)
	case *Dict:
		return p.dict(v, depth)
	case *namespace:
		p.b.WriteString("<Namespace ")
		if err := p.dict(v.attrs, depth); err != nil {
			return err
		}
		p.b.WriteByte('>')
	case *view:
		p.b.WriteString(typeName(v) + "(")
		items := make([]Value, v.dict.Len())
		for i := range items {
			items[i] = v.at(i)
		}
		if err := p.items("[", items, "]", depth); err != nil {
			return err
		}
		p.b.WriteByte(')')
	case *loopContext:
		n, err := v.size(p.st)
		if err != nil {
			return err
		}
		fmt.Fprintf(&p.b, "<LoopContext %d/%d>", v.index0+1, n)
	default:
		p.b.WriteString(scalarRepr(v))
	}
	return nil
}

func (p *printer) items(open string, items []Value, end string, depth int) error {
	p.b.WriteString(open)
	for i, item := range items {
		if i > 0 {
			p.b.WriteString(", ")
		}
		if err := p.value(item, depth+1); err != nil {
			return err
		}
	}
	p.b.WriteString(end)
	return nil
}

func (p *printer) dict(d *Dict, depth int) error {
	p.b.WriteByte('{')
	for i := range d.Len() {
		if i > 0 {
			p.b.WriteString(", ")
		}
		if err := p.value(d.keys[i], depth+1); err != nil {
			return err
		}
		p.b.WriteString(": ")
		if err := p.value(d.vals[i], depth+1); err != nil {
			return err
		}
	}
	p.b.WriteByte('}')
	return nil
}

func scalarRepr(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return floatRepr(v)
	case string:
		return quote(v)
	case markup:
		return "Markup(" + quote(string(v)) + ")"
	case *undefined:
		return "Undefined"
	case *rangeValue:
		if v.step != 1 {
			return fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step)
		}
		return fmt.Sprintf("range(%d, %d)", v.start, v.stop)
	case *macro:
		if v.def.name == "" {
			return "<Macro anonymous>"
		}
		return "<Macro " + quote(v.def.name) + ">"
	case *blockReference:
		return "<TemplateReference None>"
	case *callable:
		return "<function " + v.name + ">"
	}
	return "<" + typeName(v) + " object>"
}

// floatRepr returns the shortest decimal that reads back as f, laid out as Python does.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	sci := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(sci[strings.IndexByte(sci, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return sci
	}
	fixed := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(fixed, ".") {
		fixed += ".0"
	}
	return fixed
}

// quote returns Python's repr of a str: single quotes unless only those occur inside.
func quote(s string) string {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	var b strings.Builder
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case printable(r):
			b.WriteRune(r)
		default:
			writeEscape(&b, r)
		}
	}
	b.WriteByte(q)
	return b.String()
}

// writeEscape writes a character by its number, as Python's repr does.
func writeEscape(b *strings.Builder, r rune) {
	switch {
	case r < 0x100:
		fmt.Fprintf(b, `\x%02x`, r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// printable reports whether a character is printable by Python's str.isprintable: it is the space,
// or neither a separator nor a control, format, surrogate, private or unassigned character.
func printable(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Z, r)
}
