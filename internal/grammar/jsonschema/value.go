package jsonschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/jsonscan"
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

// maxValueDepth is the maximum nesting of a schema.
const maxValueDepth = 512

var errTooDeep = fmt.Errorf("values are nested more than %d deep", maxValueDepth)

// parseValue decodes JSON: nil, bool, string, json.Number, []any and *object.
func parseValue(data []byte) (any, error) {
	if !json.Valid(data) {
		var v any
		return nil, json.Unmarshal(data, &v) // returns the error
	}
	v, _, err := parseValid(data, jsonscan.Space(data, 0), 0)
	return v, err
}

// parseValid decodes the value at data[at:] of valid JSON and returns the position after it.
func parseValid(data []byte, at, depth int) (v any, end int, err error) {
	if depth > maxValueDepth {
		return nil, 0, errTooDeep
	}
	switch data[at] {
	case '{':
		return parseObject(data, jsonscan.Space(data, at+1), depth)
	case '[':
		list := []any{}
		for at = jsonscan.Space(data, at+1); data[at] != ']'; {
			if v, at, err = parseValid(data, at, depth+1); err != nil {
				return nil, 0, err
			}
			list = append(list, v)
			at = behindComma(data, at)
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
	end, _, _ = jsonscan.Number(data, at)
	return json.Number(data[at:end]), end, nil
}

// parseObject decodes the members of an object.
func parseObject(data []byte, at, depth int) (v any, end int, err error) {
	o := &object{values: map[string]any{}}
	for data[at] != '}' {
		var name string
		name, at = parseString(data, at)
		at = jsonscan.Space(data, jsonscan.Space(data, at)+1) // the colon
		if v, at, err = parseValid(data, at, depth+1); err != nil {
			return nil, 0, err
		}
		if _, twice := o.values[name]; !twice {
			o.keys = append(o.keys, name)
		}
		o.values[name] = v
		at = behindComma(data, at)
	}
	return o, at + 1, nil
}

// behindComma returns the position of the next value or of the closing bracket.
func behindComma(data []byte, at int) int {
	if at = jsonscan.Space(data, at); data[at] == ',' {
		return jsonscan.Space(data, at+1)
	}
	return at
}

// parseString decodes the string at data[at:]. Like encoding/json, but unlike a jsonscan.Scanner,
// it decodes a lone surrogate as U+FFFD.
func parseString(data []byte, at int) (text string, end int) {
	end, _ = jsonscan.StringEnd(data, at)
	if inside := data[at+1 : end-1]; bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return string(inside), end
	}
	_ = json.Unmarshal(data[at:end], &text) // it is valid
	return text, end
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

// maxExponent is the maximum exponent of numbers in schemas.
const maxExponent = 400

// rational returns the value of a number. ok is false if its exponent is too large.
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

// decimal returns r without an exponent. ok is false if its fraction does not end or is too long.
func decimal(r *big.Rat) (text string, ok bool) {
	for places := 0; places <= 2*maxExponent; places++ {
		text = r.FloatString(places)
		if back, _ := new(big.Rat).SetString(text); back.Cmp(r) == 0 {
			return text, true
		}
	}
	return "", false
}
