package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/jsonscan"
)

// Decode reads one JSON text into a Value as Python's json.loads does: keys keep
// their order, a repeated key keeps its first place and its last value, a number
// without fraction and exponent is an int. Nesting is bounded; NaN and Infinity,
// which are not JSON, are errors. Broken UTF-8 and lone surrogates become U+FFFD.
func Decode(data []byte) (Value, error) {
	d := decoder{s: string(data)}
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	d.space()
	if d.i < len(d.s) {
		return nil, d.errorf("text after the value")
	}
	return v, nil
}

type decoder struct {
	s string
	i int
}

func (d *decoder) errorf(format string, args ...any) error {
	return fmt.Errorf("jinja: JSON at byte %d: %s", d.i, fmt.Sprintf(format, args...))
}

func (d *decoder) space() {
	for d.i < len(d.s) && strings.IndexByte(" \t\r\n", d.s[d.i]) >= 0 {
		d.i++
	}
}

// peek returns the next byte after white space, 0 at the end.
func (d *decoder) peek() byte {
	d.space()
	if d.i < len(d.s) {
		return d.s[d.i]
	}
	return 0
}

func (d *decoder) value(depth int) (Value, error) {
	if depth > maxNesting {
		return nil, d.errorf("nested more than %d deep", maxNesting)
	}
	switch c := d.peek(); {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		return d.string()
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	case c == 0:
		return nil, d.errorf("unexpected end")
	}
	switch rest := d.s[d.i:]; {
	case strings.HasPrefix(rest, "null"):
		d.i += 4
		return nil, nil
	case strings.HasPrefix(rest, "true"):
		d.i += 4
		return true, nil
	case strings.HasPrefix(rest, "false"):
		d.i += 5
		return false, nil
	}
	return nil, d.errorf("unexpected character %q", d.s[d.i])
}

func (d *decoder) object(depth int) (Value, error) {
	d.i++
	dict := &Dict{}
	for first := true; ; first = false {
		c := d.peek()
		if c == '}' && first {
			d.i++
			return dict, nil
		}
		if c != '"' {
			return nil, d.errorf("expected a key")
		}
		key, err := d.string()
		if err != nil {
			return nil, err
		}
		if d.peek() != ':' {
			return nil, d.errorf("expected ':'")
		}
		d.i++
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		dict.set(key, v)
		switch d.peek() {
		case ',':
			d.i++
		case '}':
			d.i++
			return dict, nil
		default:
			return nil, d.errorf("expected ',' or '}'")
		}
	}
}

func (d *decoder) array(depth int) (Value, error) {
	d.i++
	list := &List{}
	if d.peek() == ']' {
		d.i++
		return list, nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, v)
		switch d.peek() {
		case ',':
			d.i++
		case ']':
			d.i++
			return list, nil
		default:
			return nil, d.errorf("expected ',' or ']'")
		}
	}
}

func (d *decoder) number() (Value, error) {
	start := d.i
	end, isInt, fault := jsonscan.Number(d.s, start)
	d.i = end
	switch fault {
	case jsonscan.None:
		return d.literal(d.s[start:end], isInt)
	case jsonscan.FractionDigits:
		return nil, d.errorf("expected digits after '.'")
	case jsonscan.ExponentDigits:
		return nil, d.errorf("expected digits of the exponent")
	}
	return nil, d.errorf("not a number")
}

func (d *decoder) literal(s string, isInt bool) (Value, error) {
	if !isInt {
		f, _ := strconv.ParseFloat(s, 64) // beyond the range it is infinite, as in Python
		return f, nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if len(s) > 4300 { // Python's own bound
		return nil, d.errorf("an integer of %d digits", len(s))
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, d.errorf("not a number")
	}
	return n, nil
}

func (d *decoder) string() (string, error) {
	d.i++
	start := d.i
	for d.i < len(d.s) && d.s[d.i] != '"' && d.s[d.i] != '\\' && d.s[d.i] >= ' ' {
		d.i++
	}
	if d.i < len(d.s) && d.s[d.i] == '"' {
		s := d.s[start:d.i]
		d.i++
		return strings.ToValidUTF8(s, "\ufffd"), nil
	}
	var b strings.Builder
	b.WriteString(d.s[start:d.i])
	for d.i < len(d.s) {
		switch c := d.s[d.i]; {
		case c == '"':
			d.i++
			return strings.ToValidUTF8(b.String(), "\ufffd"), nil
		case c < ' ':
			return "", d.errorf("control character in a string")
		case c == '\\':
			r, err := d.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
			d.i++
		}
	}
	return "", d.errorf("unexpected end of a string")
}

// escape decodes the escape at d.i. A lone half of a surrogate pair is U+FFFD.
func (d *decoder) escape() (rune, error) {
	r, end, fault := jsonscan.Unescape(d.s, d.i)
	switch fault {
	case jsonscan.None:
		d.i = end
		return r, nil
	case jsonscan.PairDigits, jsonscan.LoneHigh, jsonscan.LoneLow:
		d.i += len(`\uD800`)
		return utf8.RuneError, nil
	}
	d.i++
	switch fault {
	case jsonscan.Unterminated:
		return 0, d.errorf("unexpected end of a string")
	case jsonscan.UnknownEscape:
		return 0, d.errorf("bad escape \\%c", d.s[d.i])
	}
	return 0, d.errorf("bad \\u escape")
}
