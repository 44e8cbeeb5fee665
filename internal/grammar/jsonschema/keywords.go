package jsonschema

import (
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/grammar/regex"
)

// reader reads the keywords of one schema.
type reader struct {
	c    *compiler
	o    *object
	path string
}

func itoa(i int) string { return strconv.Itoa(i) }

// types reads type and the keywords that concern one type each.
func (r *reader) types() (*set, error) {
	s := &set{null: true, yes: true, no: true}
	names, err := r.typeNames()
	if err != nil {
		return nil, err
	}
	has := func(name string) bool { return names == nil || slices.Contains(names, name) }
	s.null, s.yes, s.no = has("null"), has("boolean"), has("boolean")
	if has("number") || has("integer") {
		n, err := r.number()
		if err != nil {
			return nil, err
		}
		n.integer = !has("number")
		s.numbers = []*number{n}
		if (&number{}).and(n) == nil {
			s.numbers = nil
		}
	}
	if has("string") {
		t, err := r.str()
		if err != nil {
			return nil, err
		}
		if t.max < 0 || t.min <= t.max {
			s.strings = []*str{t}
		}
	}
	if has("array") {
		a, err := r.array()
		if err != nil {
			return nil, err
		}
		if a.max < 0 || a.min <= a.max {
			s.arrays = []*array{a}
		}
	}
	if has("object") {
		o, err := r.object()
		if err != nil {
			return nil, err
		}
		if o.max < 0 || max(o.min, len(o.required)) <= o.max {
			s.objects = []*record{o}
		}
	}
	return s, nil
}

var typeNames = []string{"null", "boolean", "number", "integer", "string", "array", "object"}

// typeNames reads type. It returns nil if the keyword is missing.
func (r *reader) typeNames() ([]string, error) {
	v, ok := r.o.get("type")
	if !ok {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	names := []string{}
	for _, item := range list {
		name, ok := item.(string)
		if !ok || !slices.Contains(typeNames, name) {
			text, _ := json.Marshal(item)
			return nil, fail(join(r.path, "type"), "got %s, want one of %s", text, strings.Join(typeNames, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// maxCount is the maximum of limits of characters, items and properties.
const maxCount = 1 << 30

// count reads a limit. found is false if the keyword is missing.
func (r *reader) count(keyword string) (n int, found bool, err error) {
	v, ok := r.o.get(keyword)
	if !ok {
		return 0, false, nil
	}
	number, ok := v.(json.Number)
	if ok {
		if value, fits := rational(number); fits && value.IsInt() && value.Sign() >= 0 {
			if value.Cmp(big.NewRat(maxCount, 1)) > 0 {
				return maxCount, true, nil
			}
			return int(value.Num().Int64()), true, nil
		}
	}
	return 0, false, fail(join(r.path, keyword), "want a whole number from 0 on")
}

// counts reads a lower and an upper limit. most is -1 if there is no upper limit.
func (r *reader) counts(lower, upper string) (least, most int, err error) {
	if least, _, err = r.count(lower); err != nil {
		return 0, 0, err
	}
	n, found, err := r.count(upper)
	if !found {
		n = -1
	}
	return least, n, err
}

func (r *reader) rational(keyword string) (*big.Rat, error) {
	v, ok := r.o.get(keyword)
	if !ok {
		return nil, nil
	}
	if n, ok := v.(json.Number); ok {
		if value, fits := rational(n); fits {
			return value, nil
		}
		return nil, fail(join(r.path, keyword), "the number is too large or has too many digits")
	}
	return nil, fail(join(r.path, keyword), "want a number")
}

func (r *reader) number() (*number, error) {
	n := &number{}
	for _, b := range []struct {
		keyword string
		to      **limit
		sign    int
		strict  bool
	}{
		{"minimum", &n.min, 1, false}, {"exclusiveMinimum", &n.min, 1, true},
		{"maximum", &n.max, -1, false}, {"exclusiveMaximum", &n.max, -1, true},
	} {
		v, err := r.rational(b.keyword)
		if err != nil {
			return nil, err
		}
		if v != nil {
			*b.to = stricter(*b.to, &limit{v, b.strict}, b.sign)
		}
	}
	v, err := r.rational("multipleOf")
	if err != nil || v == nil {
		return n, err
	}
	if v.Sign() <= 0 {
		return nil, fail(join(r.path, "multipleOf"), "want a number above 0")
	}
	n.multiple = []*big.Rat{v}
	return n, nil
}

func (r *reader) text(keyword string) (*place, error) {
	v, ok := r.o.get(keyword)
	if !ok {
		return nil, nil
	}
	text, ok := v.(string)
	if !ok {
		return nil, fail(join(r.path, keyword), "want a string")
	}
	return &place{text, join(r.path, keyword)}, nil
}

func (r *reader) str() (*str, error) {
	t := &str{}
	var err error
	if t.min, t.max, err = r.counts("minLength", "maxLength"); err != nil {
		return nil, err
	}
	pattern, err := r.text("pattern")
	if err != nil {
		return nil, err
	}
	if pattern != nil {
		if open, least, most, ok := regex.Uncount(pattern.text, false); ok {
			pattern.text, t.min, t.max = open, max(t.min, least), both(t.max, most)
		}
		t.patterns = []place{*pattern}
	}
	format, err := r.text("format")
	if err != nil || format == nil {
		return t, err
	}
	known, err := formatOf(format.text, format.path)
	if known {
		t.formats = []place{*format}
	}
	return t, err
}

func (r *reader) array() (*array, error) {
	a := &array{}
	var err error
	if a.min, a.max, err = r.counts("minItems", "maxItems"); err != nil {
		return nil, err
	}
	if v, ok := r.o.get("uniqueItems"); ok && v == true {
		a.unique = join(r.path, "uniqueItems")
	} else if _, isBool := v.(bool); ok && !isBool {
		return nil, fail(join(r.path, "uniqueItems"), "want true or false")
	}
	layer, found, err := r.items()
	if err != nil {
		return nil, err
	}
	if found {
		a.layers = []arrayLayer{layer}
	}
	return a, r.contains(a)
}

// items reads the schemas of items.
func (r *reader) items() (layer arrayLayer, found bool, err error) {
	prefix, rest := "prefixItems", "items"
	if list, ok := r.o.values["items"].([]any); ok && list != nil {
		prefix, rest = "items", "additionalItems"
	}
	if v, ok := r.o.get(prefix); ok {
		list, ok := v.([]any)
		if !ok {
			return layer, false, fail(join(r.path, prefix), "want a list of schemas")
		}
		for i, item := range list {
			k, err := r.sub(item, join(r.path, prefix)+"["+itoa(i)+"]")
			if err != nil {
				return layer, false, err
			}
			layer.prefix = append(layer.prefix, k)
		}
		found = true
	}
	v, ok := r.o.get(rest)
	if !ok {
		rest = "unevaluatedItems"
		if v, ok = r.o.get(rest); !ok {
			return layer, found, nil
		}
	}
	layer.items, err = r.sub(v, join(r.path, rest))
	return layer, true, err
}

func (r *reader) contains(a *array) error {
	v, ok := r.o.get("contains")
	if !ok {
		return nil // minContains and maxContains have no effect without contains
	}
	path := join(r.path, "contains")
	k, err := r.sub(v, path)
	if err != nil {
		return err
	}
	least, found, err := r.count("minContains")
	if !found {
		least = 1
	}
	if err != nil {
		return err
	}
	most, found, err := r.count("maxContains")
	if !found {
		most = -1
	}
	if err != nil {
		return err
	}
	a.contains = []contains{{k, least, most, path}}
	return nil
}

func (r *reader) object() (*record, error) {
	o := &record{minPath: join(r.path, "minProperties")}
	var err error
	if o.min, o.max, err = r.counts("minProperties", "maxProperties"); err != nil {
		return nil, err
	}
	if o.required, err = r.names("required"); err != nil {
		return nil, err
	}
	if v, ok := r.o.get("propertyNames"); ok {
		if o.names, err = r.sub(v, join(r.path, "propertyNames")); err != nil {
			return nil, err
		}
	}
	layer, found, err := r.properties()
	if found {
		o.layers = []recordLayer{layer}
	}
	return o, err
}

// names reads a list of names.
func (r *reader) names(keyword string) ([]string, error) {
	v, ok := r.o.get(keyword)
	if !ok {
		return nil, nil
	}
	return nameList(v, join(r.path, keyword))
}

func nameList(v any, path string) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fail(path, "want a list of names")
	}
	known := map[string]bool{}
	var names []string
	for _, item := range list {
		name, ok := item.(string)
		if !ok {
			return nil, fail(path, "want a list of names")
		}
		if !known[name] {
			known[name] = true
			names = append(names, name)
		}
	}
	return names, nil
}

// properties reads the schemas of properties.
func (r *reader) properties() (layer recordLayer, found bool, err error) {
	layer = recordLayer{props: map[string]conj{}, path: r.path}
	if v, ok := r.o.get("properties"); ok {
		props, ok := v.(*object)
		if !ok {
			return layer, false, fail(join(r.path, "properties"), "want an object")
		}
		for _, name := range props.keys {
			k, err := r.sub(props.values[name], join(join(r.path, "properties"), name))
			if err != nil {
				return layer, false, err
			}
			layer.names = append(layer.names, name)
			layer.props[name] = k
		}
		found = true
	}
	if v, ok := r.o.get("patternProperties"); ok {
		props, ok := v.(*object)
		if !ok {
			return layer, false, fail(join(r.path, "patternProperties"), "want an object")
		}
		for _, src := range props.keys {
			path := join(join(r.path, "patternProperties"), src)
			k, err := r.sub(props.values[src], path)
			if err != nil {
				return layer, false, err
			}
			layer.patterns = append(layer.patterns, pattern{place{src, path}, k})
		}
		found = true
	}
	if v, ok := r.o.get("additionalProperties"); ok {
		layer.all = true
		layer.others, err = r.sub(v, join(r.path, "additionalProperties"))
		found = true
	}
	return layer, found, err
}
