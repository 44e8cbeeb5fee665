package jinja

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
)

// jsonStyle is the keyword arguments of Python's json.dumps.
type jsonStyle struct {
	ascii    bool
	pretty   bool   // an indent was given
	indent   string // one level of it
	item     string // between items
	colon    string // between key and value
	sortKeys bool
}

// filterToJSON is the tojson filter: json.dumps without HTML escaping.
func filterToJSON(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	style := jsonStyle{item: ", ", colon: ": "}
	style.ascii = a[0] != missing && truth(a[0])
	style.sortKeys = a[3] != missing && truth(a[3])
	_, isText := text(v) // Python does not look at the style of a text
	if a[1] != missing && a[1] != nil && !isText {
		style.pretty, style.item = true, ","
		if s, ok := text(a[1]); ok {
			style.indent = s
		} else if n, ok := integer(a[1]); ok && n <= 1<<16 {
			style.indent = strings.Repeat(" ", int(max(n, 0)))
		} else {
			return nil, typeErrorf("indent must be an int or a str, not %s", typeName(a[1]))
		}
	}
	if a[2] != missing && a[2] != nil {
		pair, err := collect(st, a[2])
		if err != nil {
			return nil, err
		}
		item, ok1 := text(at(pair, 0))
		colon, ok2 := text(at(pair, 1))
		if len(pair) != 2 || !(ok1 && ok2) && !isText {
			return nil, typeErrorf("separators must be two strings")
		}
		style.item, style.colon = item, colon
	}
	w := jsonWriter{st: st, style: style}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return w.b.String(), st.grow(w.b.Len())
}

func at(items []Value, i int) Value {
	if i < len(items) {
		return items[i]
	}
	return missing
}

type jsonWriter struct {
	st    *state
	style jsonStyle
	b     strings.Builder
}

func (w *jsonWriter) value(v Value, depth int) error {
	if depth > maxNesting {
		return failf(KindLimit, "maximum recursion depth exceeded while encoding JSON")
	}
	if w.b.Len() > w.st.limits.Output {
		return w.st.grow(w.b.Len())
	}
	if err := w.st.work(1); err != nil {
		return err
	}
	switch v := v.(type) {
	case *List:
		return w.items(v.Items, depth)
	case *Tuple:
		return w.items(v.Items, depth)
	case *Dict:
		return w.dict(v, depth)
	}
	s, ok := jsonScalar(v)
	if !ok {
		t, isText := text(v)
		if !isText {
			return typeErrorf("Object of type %s is not JSON serializable", typeName(v))
		}
		w.quote(t)
		return nil
	}
	w.b.WriteString(s)
	return nil
}

// jsonScalar returns the JSON of None, bools and numbers.
func jsonScalar(v Value) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case *big.Int:
		return v.String(), true
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN", true
		case math.IsInf(v, 1):
			return "Infinity", true
		case math.IsInf(v, -1):
			return "-Infinity", true
		}
		return floatRepr(v), true
	}
	return "", false
}

// gap ends an opening bracket, an item or a closing bracket in pretty style.
func (w *jsonWriter) gap(depth int) {
	if !w.style.pretty {
		return
	}
	w.b.WriteByte('\n')
	for range depth {
		w.b.WriteString(w.style.indent)
	}
}

func (w *jsonWriter) items(items []Value, depth int) error {
	if len(items) == 0 {
		w.b.WriteString("[]")
		return nil
	}
	w.b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			w.b.WriteString(w.style.item)
		}
		w.gap(depth + 1)
		if err := w.value(item, depth+1); err != nil {
			return err
		}
	}
	w.gap(depth)
	w.b.WriteByte(']')
	return nil
}

func (w *jsonWriter) dict(d *Dict, depth int) error {
	if d.Len() == 0 {
		w.b.WriteString("{}")
		return nil
	}
	order, err := w.order(d)
	if err != nil {
		return err
	}
	w.b.WriteByte('{')
	for n, i := range order {
		if n > 0 {
			w.b.WriteString(w.style.item)
		}
		w.gap(depth + 1)
		key, ok := text(d.keys[i])
		if !ok {
			if key, ok = jsonScalar(d.keys[i]); !ok {
				return typeErrorf("keys must be str, int, float, bool or None, not %s", typeName(d.keys[i]))
			}
		}
		w.quote(key)
		w.b.WriteString(w.style.colon)
		if err := w.value(d.vals[i], depth+1); err != nil {
			return err
		}
	}
	w.gap(depth)
	w.b.WriteByte('}')
	return nil
}

// order returns the sequence in which the entries of d are written.
func (w *jsonWriter) order(d *Dict) ([]int, error) {
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if !w.style.sortKeys {
		return order, nil
	}
	var failed error
	sort.SliceStable(order, func(i, j int) bool {
		c, _, err := compare(w.st, "<", d.keys[order[i]], d.keys[order[j]])
		if err != nil && failed == nil {
			failed = err
		}
		return c < 0
	})
	return order, failed
}

func (w *jsonWriter) quote(s string) {
	b := &w.b
	b.WriteByte('"')
	start := 0
	for i, r := range s {
		if r >= ' ' && r != '"' && r != '\\' && (r < 0x7f || !w.style.ascii) {
			continue
		}
		b.WriteString(s[start:i])
		start = i + len(string(r))
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if r > 0xffff {
				hi, lo := utf16.EncodeRune(r)
				fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
			} else {
				fmt.Fprintf(b, `\u%04x`, r)
			}
		}
	}
	b.WriteString(s[start:])
	b.WriteByte('"')
}
