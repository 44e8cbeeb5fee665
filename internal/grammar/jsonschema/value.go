package jsonschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strings"
	"unicode/utf8"
)

// object is a JSON object whose keys keep their order.
type object struct {
	keys   []string
	values map[string]any
}

func (o *object) get(key string) (any, bool) {
	v, ok := o.values[key]
	return v, ok
}

// maxValueDepth bounds the nesting of a schema.
const maxValueDepth = 512

// parseValue decodes JSON: nil, bool, string, json.Number, []any and *object.
func parseValue(data []byte) (any, error) {
	if json.Valid(data) {
		v, _, err := parseValid(data, skipSpace(data, 0), 0)
		return v, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF { //nolint:errorlint // Token returns it as it is
		return nil, fmt.Errorf("something follows the value")
	}
	return v, nil
}

// parseValid decodes the value at data[at:] of valid JSON, and returns where it ends.
func parseValid(data []byte, at, depth int) (v any, end int, err error) {
	if depth > maxValueDepth {
		return nil, 0, errTooDeep
	}
	switch data[at] {
	case '{':
		return parseObject(data, skipSpace(data, at+1), depth)
	case '[':
		list := []any{}
		for at = skipSpace(data, at+1); data[at] != ']'; {
			if v, at, err = parseValid(data, at, depth+1); err != nil {
				return nil, 0, err
			}
			list = append(list, v)
			if at = skipSpace(data, at); data[at] == ',' {
				at = skipSpace(data, at+1)
			}
		}
		return list, at + 1, nil
	case '"':
		text, end := parseString(data, at)
		return text, end, nil
	case 't':
		return true, at + len("true"), nil
	case 'f':
		return false, at + len("false"), nil
	case 'n':
		return nil, at + len("null"), nil
	}
	for end = at; end < len(data) && bytes.IndexByte([]byte("+-.eE0123456789"), data[end]) >= 0; {
		end++
	}
	return json.Number(data[at:end]), end, nil
}

// parseObject decodes the members of an object.
func parseObject(data []byte, at, depth int) (v any, end int, err error) {
	o := &object{values: map[string]any{}}
	for data[at] != '}' {
		var name string
		name, at = parseString(data, at)
		at = skipSpace(data, skipSpace(data, at)+1) // the colon
		if v, at, err = parseValid(data, at, depth+1); err != nil {
			return nil, 0, err
		}
		if _, twice := o.values[name]; !twice {
			o.keys = append(o.keys, name)
		}
		o.values[name] = v
		if at = skipSpace(data, at); data[at] == ',' {
			at = skipSpace(data, at+1)
		}
	}
	return o, at + 1, nil
}

// parseString decodes the string at data[at:].
func parseString(data []byte, at int) (text string, end int) {
	plain := true
	for end = at + 1; data[end] != '"'; end++ {
		if data[end] == '\\' {
			plain = false
			end++
		}
	}
	end++
	if plain && utf8.Valid(data[at:end]) {
		return string(data[at+1 : end-1]), end
	}
	_ = json.Unmarshal(data[at:end], &text) // it is valid
	return text, end
}

func skipSpace(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' || data[at] == '\r') {
		at++
	}
	return at
}

var errTooDeep = fmt.Errorf("values are nested more than %d deep", maxValueDepth)

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, errTooDeep
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	o := &object{values: map[string]any{}}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decode(d, depth+1)
		if err != nil {
			return nil, err
		}
		name := key.(string) //nolint:forcetypeassert // keys are strings
		if _, twice := o.values[name]; !twice {
			o.keys = append(o.keys, name)
		}
		o.values[name] = v
	}
	_, err = d.Token()
	return o, err
}

// typeName names the JSON type of v.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// maxExponent bounds the exponent of numbers in schemas.
const maxExponent = 400

// rational returns the value of a number; ok is false if its exponent is too large.
func rational(n json.Number) (r *big.Rat, ok bool) {
	text := n.String()
	if len(text) > 400 {
		return nil, false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var exponent int
		if _, err := fmt.Sscanf(text[i+1:], "%d", &exponent); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}

// decimal writes r without exponent; ok is false if it has no end or is too long.
func decimal(r *big.Rat) (text string, ok bool) {
	for places := 0; places <= 2*maxExponent; places++ {
		text = r.FloatString(places)
		if back, _ := new(big.Rat).SetString(text); back.Cmp(r) == 0 {
			return text, true
		}
	}
	return "", false
}
