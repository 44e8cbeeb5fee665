package meta

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"

	"github.com/heftai/heft/internal/smallfile"
)

// A ConfigError reports a bad field of a configuration file.
type ConfigError struct {
	File   string // "config.json" or "generation_config.json"
	Field  string // dotted path of the field, "" for the file as a whole
	Reason string
}

// Error names the field.
func (e *ConfigError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("meta: %s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("meta: %s: %s: %s", e.File, e.Field, e.Reason)
}

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = smallfile.Config

// maxSize is the maximum of every size in a config. The product of two fits into an int64; the
// builder checks products of more.
const maxSize = 1 << 26

// fields reads a JSON object. A missing field and null both mean the default, unless the caller
// checks has first. It records the first error and continues with defaults, so that callers check
// once.
type fields struct {
	file   string // if it is not that of errs
	at     string // dotted path of the object with a final dot, or "" for the file
	values map[string]any
	errs   *fieldErrors
}

// fieldErrors is the state that the objects of a file share.
type fieldErrors struct {
	file    string
	first   error
	byLayer bool // values per layer were requested
}

// readFields parses the JSON object of a file.
func readFields(file string, data []byte) (*fields, error) {
	bad := func(reason string) error { return &ConfigError{File: file, Reason: reason} }
	if len(data) > maxConfigBytes {
		return nil, bad(fmt.Sprintf("%d bytes, more than the %d allowed", len(data), maxConfigBytes))
	}
	dec := json.NewDecoder(bytes.NewReader(finite(data)))
	dec.UseNumber()
	var values map[string]any
	if err := dec.Decode(&values); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
			return nil, bad(fmt.Sprintf("line %d: %v", line, err))
		}
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return nil, bad("not a JSON object")
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, bad(fmt.Sprintf("the JSON object does not end: %d bytes are there; was the file fetched whole?", len(data)))
		}
		return nil, bad(err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, bad("text after the JSON object")
	}
	if values == nil {
		return nil, bad("null instead of a JSON object")
	}
	return &fields{values: values, errs: &fieldErrors{file: file}}, nil
}

// infinity replaces Infinity, which Python's json writes for the absence of a limit. It is out of
// the range of numbers.
const infinity = json.Number("1e999")

// finite returns data with each Infinity outside of strings replaced by infinity. The length does
// not change.
func finite(data []byte) []byte {
	word := []byte("Infinity")
	if !bytes.Contains(data, word) {
		return data
	}
	out, quoted := bytes.Clone(data), false
	for i := 0; i < len(out); i++ {
		switch {
		case quoted && out[i] == '\\':
			i++
		case out[i] == '"':
			quoted = !quoted
		case !quoted && bytes.HasPrefix(out[i:], word):
			copy(out[i:], string(infinity)+"        "[:len(word)-len(infinity)])
		}
	}
	return out
}

// err returns the first error of the whole file.
func (f *fields) err() error { return f.errs.first }

// fail records an error of a field, unless an error is recorded already.
func (f *fields) fail(name, format string, args ...any) {
	if f.errs.first == nil {
		f.errs.first = &ConfigError{File: cmp.Or(f.file, f.errs.file), Field: f.at + name, Reason: fmt.Sprintf(format, args...)}
	}
}

// has reports whether the field exists and is not null.
func (f *fields) has(name string) bool { return f.values[name] != nil }

// null reports whether the field exists and is null.
func (f *fields) null(name string) bool {
	v, there := f.values[name]
	return there && v == nil
}

// number returns a field's value as a finite float64.
func (f *fields) number(name string, v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		f.fail(name, "%s instead of a number", kindOf(v))
		return 0, false
	}
	x, err := strconv.ParseFloat(n.String(), 64)
	if err != nil || math.IsInf(x, 0) {
		f.fail(name, "number %.40s out of range", n)
		return 0, false
	}
	return x, true
}

// float returns a finite number.
func (f *fields) float(name string, def float64) float64 {
	v := f.values[name]
	if v == nil {
		return def
	}
	if x, ok := f.number(name, v); ok {
		return x
	}
	return def
}

// positive returns a number above 0.
func (f *fields) positive(name string, def float64) float64 {
	x := f.float(name, def)
	if !(x > 0) {
		f.fail(name, "%v is not above 0", x)
		return def
	}
	return x
}

// integer converts a number to an int within [lo, hi]. The number may have a fraction or an
// exponent in the text.
func (f *fields) integer(name string, v any, lo, hi int) (int, bool) {
	x, ok := f.number(name, v)
	if !ok {
		return 0, false
	}
	if x != math.Trunc(x) {
		f.fail(name, "%v is not a whole number", x)
		return 0, false
	}
	if x < float64(lo) || x > float64(hi) {
		f.fail(name, "%v is not within %d and %d", x, lo, hi)
		return 0, false
	}
	return int(x), true
}

// count returns an integer within [lo, hi].
func (f *fields) count(name string, def, lo, hi int) int {
	v := f.values[name]
	if v == nil {
		return def
	}
	if n, ok := f.integer(name, v, lo, hi); ok {
		return n
	}
	return def
}

// size returns an integer within [1, maxSize].
func (f *fields) size(name string, def int) int { return f.count(name, def, 1, maxSize) }

func (f *fields) bool(name string, def bool) bool {
	switch v := f.values[name].(type) {
	case nil:
		return def
	case bool:
		return v
	default:
		f.fail(name, "%s instead of true or false", kindOf(v))
		return def
	}
}

func (f *fields) text(name, def string) string {
	switch v := f.values[name].(type) {
	case nil:
		return def
	case string:
		return v
	default:
		f.fail(name, "%s instead of a text", kindOf(v))
		return def
	}
}

// object returns a nested object, or nil if it is missing, null or empty.
func (f *fields) object(name string) *fields {
	switch v := f.values[name].(type) {
	case nil:
	case map[string]any:
		if len(v) > 0 {
			return &fields{at: f.at + name + ".", values: v, errs: f.errs}
		}
	default:
		f.fail(name, "%s instead of an object", kindOf(v))
	}
	return nil
}

// part is object that returns an object without fields instead of nil.
func (f *fields) part(name string) *fields {
	if o := f.object(name); o != nil {
		return o
	}
	return &fields{at: f.at + name + ".", errs: f.errs}
}

// byLayer returns the objects of a field whose keys are layer numbers, with or without leading
// zeros.
func (f *fields) byLayer(name string, layers int) map[int]*fields {
	f.errs.byLayer = true
	list := f.object(name)
	if list == nil {
		return nil
	}
	out := map[int]*fields{}
	for key := range list.values {
		i, err := strconv.Atoi(key)
		switch {
		case err != nil || i < 0 || i >= layers:
			list.fail(key, "is not one of the %d layers", layers)
		case out[i] != nil:
			list.fail(key, "names layer %d again", i)
		default:
			if l := list.object(key); l != nil {
				out[i] = l
			}
		}
	}
	return out
}

// byType sets a flag for each layer by a list of types, if there is one.
func (f *fields) byType(name string, flags []bool, yes, no string) {
	types := f.texts(name)
	if types == nil {
		return
	}
	if len(types) != len(flags) {
		f.fail(name, "%d types for %d layers", len(types), len(flags))
		return
	}
	for i, kind := range types {
		if flags[i] = kind == yes; kind != yes && kind != no {
			f.fail(name, "%.40q is not supported (supported: %s, %s)", kind, yes, no)
		}
	}
}

// without returns f without some of its fields.
func (f *fields) without(names ...string) *fields {
	values := maps.Clone(f.values)
	for _, name := range names {
		delete(values, name)
	}
	return &fields{at: f.at, values: values, errs: f.errs}
}

// renamed returns f with the value of the field alias, if it exists, under name.
func (f *fields) renamed(name, alias string) *fields {
	if !f.has(alias) {
		return f
	}
	g := f.without(alias)
	g.values[name] = f.values[alias]
	return g
}

// element returns the name of an element of a list.
func element(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }

// list returns an array, or nil if it is missing or null.
func (f *fields) list(name string) []any {
	switch v := f.values[name].(type) {
	case nil:
	case []any:
		return v
	default:
		f.fail(name, "%s instead of a list", kindOf(v))
	}
	return nil
}

// floats returns a list of finite numbers.
func (f *fields) floats(name string) []float64 {
	var out []float64
	list := f.list(name)
	for i, v := range list {
		x, ok := f.number(element(name, i), v)
		if !ok {
			return nil
		}
		out = append(out, x)
	}
	return out
}

// texts returns a list of strings.
func (f *fields) texts(name string) []string {
	var out []string
	list := f.list(name)
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			f.fail(element(name, i), "%s instead of a text", kindOf(v))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// tokens returns the token ids of a field, which is a number or a list. It returns nil if the
// field is missing or null.
func (f *fields) tokens(name string) []int {
	var list []any
	switch v := f.values[name].(type) {
	case nil:
		return nil
	case []any:
		list = v
	default:
		list = []any{v}
	}
	ids := make([]int, 0, len(list))
	for _, v := range list {
		id, ok := f.integer(name, v, math.MinInt32, math.MaxInt32)
		if !ok {
			return nil
		}
		if id >= 0 { // -1 stands for "none" in some published files
			ids = append(ids, id)
		}
	}
	return ids
}

// token returns one token id, or none if there is no id.
func (f *fields) token(name string, none int) int {
	if ids := f.tokens(name); len(ids) > 0 {
		return ids[0]
	}
	return none
}

// dtype returns the dtype that a field names, or NoDType if it names none or "auto".
func (f *fields) dtype(name string) DType {
	text := f.text(name, "")
	if text == "" || text == "auto" {
		return NoDType
	}
	d, err := ParseDType(text)
	if err != nil {
		f.fail(name, "unknown dtype %.40q", text)
	}
	return d
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a text"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	}
	return "an object"
}
