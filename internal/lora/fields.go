package lora

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// reader decodes fields of a JSON object and keeps the first error. A missing or null field has its
// default.
type reader struct {
	fields map[string]json.RawMessage
	err    error
}

// value decodes a field into v and reports whether it is set.
func (r *reader) value(name string, v any, want string) bool {
	raw := bytes.TrimSpace(r.fields[name])
	if r.err != nil || len(raw) == 0 || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		r.err = fmt.Errorf("%s is %s, want %s", name, short(raw), want)
		return false
	}
	return true
}

// short abbreviates a value for a message.
func short(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}

func (r *reader) text(name string) string {
	var v string
	r.value(name, &v, "a text")
	return v
}

func (r *reader) boolean(name string) bool {
	var v bool
	r.value(name, &v, "true or false")
	return v
}

func (r *reader) number(name string, absent float64) float64 {
	v := absent
	if !r.value(name, &v, "a number") {
		return absent
	}
	return v
}

func (r *reader) integer(name string, absent int) int {
	v := r.number(name, float64(absent))
	if v != float64(int(v)) && r.err == nil {
		r.err = fmt.Errorf("%s is %v, want an integer", name, v)
	}
	return int(v)
}

// integers decodes a list of numbers, or a single one.
func (r *reader) integers(name string) []int {
	if raw := bytes.TrimSpace(r.fields[name]); len(raw) > 0 && raw[0] != '[' && string(raw) != "null" {
		var one int
		if r.value(name, &one, "a whole number or a list of them") {
			return []int{one}
		}
		return nil
	}
	var list []int
	r.value(name, &list, "a whole number or a list of them")
	return list
}

// list decodes a list of strings, or a single one.
func (r *reader) list(name string) []string {
	if raw := bytes.TrimSpace(r.fields[name]); len(raw) > 0 && raw[0] == '"' {
		return []string{r.text(name)}
	}
	var list []string
	r.value(name, &list, "a list of texts")
	return list
}

// names decodes a list, a regular expression, or the keyword for all linear maps.
func (r *reader) names(name string) Names {
	raw := bytes.TrimSpace(r.fields[name])
	if len(raw) == 0 || raw[0] != '"' {
		return Names{List: r.list(name)}
	}
	switch text := r.text(name); {
	case strings.EqualFold(text, allLinear) && name == "target_modules":
		return Names{AllLinear: true}
	default:
		return Names{Pattern: text}
	}
}

// allLinear is PEFT's keyword for all linear maps except the head.
const allLinear = "all-linear"

// overrides decodes an object in the order of its keys, which is significant.
func (r *reader) overrides(name string) []Override {
	raw := bytes.TrimSpace(r.fields[name])
	if r.err != nil || empty(raw) {
		return nil
	}
	fail := func(err error) []Override {
		r.err = fmt.Errorf("%s: %w", name, err)
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fail(fmt.Errorf("%s is not an object", short(raw)))
	}
	var list []Override
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fail(err)
		}
		o := Override{Pattern: key.(string)} // object keys are strings
		if err := d.Decode(&o.Value); err != nil {
			return fail(fmt.Errorf("%q: %w", o.Pattern, err))
		}
		list = append(list, o)
	}
	return list
}
