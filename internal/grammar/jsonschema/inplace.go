package jsonschema

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// ref follows $ref.
func (r *reader) ref(s *set) (*set, error) {
	target, err := r.text("$ref")
	if target == nil || err != nil {
		return s, err
	}
	return r.follow(s, target)
}

// follow returns the intersection of s and the schema that target refers to.
func (r *reader) follow(s *set, target *place) (*set, error) {
	v, path, err := r.c.resolve(target.text, target.path)
	if err != nil {
		return nil, err
	}
	k, err := r.sub(v, path)
	if err != nil {
		return nil, err
	}
	t, err := r.c.normal(k)
	if err != nil {
		return nil, err
	}
	return r.c.both(s, t, target.path)
}

// dynamicRef follows $dynamicRef and $recursiveRef. In a schema that is one resource they are
// references like others. It fails if schemas inside have ids of their own, because the target then
// depends on the path of references that leads there.
func (r *reader) dynamicRef(s *set) (*set, error) {
	for _, keyword := range []string{"$dynamicRef", "$recursiveRef"} {
		target, err := r.text(keyword)
		if err != nil {
			return nil, err
		}
		if target == nil {
			continue
		}
		ids := 0
		r.c.find(r.c.root, 0, func(o *object) bool {
			if _, ok := o.values["$id"].(string); ok && any(o) != r.c.root {
				ids++
			}
			return false
		})
		if ids > 0 {
			return nil, fail(target.path, "it is not supported in a schema with ids within it")
		}
		if s, err = r.follow(s, target); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// resolve returns the schema that a reference inside the document names.
func (c *compiler) resolve(ref, path string) (v any, at string, err error) {
	base, fragment, _ := strings.Cut(ref, "#")
	v = c.root
	if base != "" {
		if v = c.find(c.root, 0, func(o *object) bool { return sameID(o, base) }); v == nil {
			if err := c.spend(0); err != nil {
				return nil, "", err // it may be further down
			}
			return nil, "", fail(path, "%q is outside of the schema; only references inside of it are supported", ref)
		}
	}
	if fragment == "" {
		return v, "", nil
	}
	text, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, "", fail(path, "%q is no reference", ref)
	}
	if !strings.HasPrefix(text, "/") {
		found := c.find(v, 0, func(o *object) bool {
			return o.values["$anchor"] == text || o.values["$dynamicAnchor"] == text || o.values["$id"] == "#"+text
		})
		if found == nil {
			if err := c.spend(0); err != nil {
				return nil, "", err // it may be further down
			}
			return nil, "", fail(path, "nothing is called %q", ref)
		}
		return found, text, nil
	}
	names := strings.Split(text[1:], "/")
	for _, name := range names {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		switch parent := v.(type) {
		case *object:
			child, ok := parent.get(name)
			if !ok {
				return nil, "", fail(path, "nothing is at %q", ref)
			}
			v = child
		case []any:
			i := slices.IndexFunc(parent, func(any) bool { return true })
			n := json.Number(name)
			k, err := n.Int64()
			if err != nil || i < 0 || k < 0 || int(k) >= len(parent) {
				return nil, "", fail(path, "nothing is at %q", ref)
			}
			v = parent[k]
		default:
			return nil, "", fail(path, "nothing is at %q", ref)
		}
	}
	return v, strings.Join(names, "."), nil
}

func sameID(o *object, base string) bool {
	id, ok := o.values["$id"].(string)
	id = strings.TrimSuffix(id, "#")
	return ok && (id == base || strings.HasSuffix(id, "/"+base) && !strings.Contains(base, "://"))
}

// find returns the first object below v for which wanted is true, or nil.
func (c *compiler) find(v any, depth int, wanted func(*object) bool) any {
	if c.spend(1) != nil {
		return nil
	}
	switch v := v.(type) {
	case *object:
		if wanted(v) {
			return v
		}
		for _, key := range v.keys {
			if found := c.find(v.values[key], depth+1, wanted); found != nil {
				return found
			}
		}
	case []any:
		for _, item := range v {
			if found := c.find(item, depth+1, wanted); found != nil {
				return found
			}
		}
	}
	return nil
}

// values reads const and enum.
func (r *reader) values(s *set) (*set, error) {
	if v, ok := r.o.get("const"); ok {
		one, err := r.c.constants([]any{v}, join(r.path, "const"))
		if err != nil {
			return nil, err
		}
		if s, err = r.c.both(s, one, r.path); err != nil {
			return nil, err
		}
	}
	v, ok := r.o.get("enum")
	if !ok {
		return s, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fail(join(r.path, "enum"), "want a list")
	}
	all, err := r.c.constants(list, join(r.path, "enum"))
	if err != nil {
		return nil, err
	}
	return r.c.both(s, all, r.path)
}

// constants returns the set of some values.
func (c *compiler) constants(list []any, path string) (*set, error) {
	s := &set{}
	var texts, numbers []string
	known := map[string]bool{}
	for i, v := range list {
		if err := c.spend(2); err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case nil:
			s.null = true
		case bool:
			s.yes, s.no = s.yes || v, s.no || !v
		case string:
			if !known[v] {
				known[v] = true
				texts = append(texts, v)
			}
		case json.Number:
			spelled, ok := spellings(v)
			if !ok {
				return nil, fail(path, "the number %.40s is too large", v)
			}
			numbers = append(numbers, spelled...)
		case []any:
			a := &array{min: len(v), max: len(v), layers: []arrayLayer{{}}}
			for k, item := range v {
				id, err := c.add(constant(item), path+"["+itoa(i)+"]["+itoa(k)+"]")
				if err != nil {
					return nil, err
				}
				a.layers[0].prefix = append(a.layers[0].prefix, conj{id})
			}
			s.arrays = append(s.arrays, a)
		case *object:
			o, err := c.constantObject(v, path+"["+itoa(i)+"]")
			if err != nil {
				return nil, err
			}
			s.objects = append(s.objects, o)
		}
	}
	if texts != nil {
		s.strings = []*str{{max: -1, texts: texts}}
	}
	if numbers != nil {
		s.numbers = []*number{{texts: numbers}}
	}
	return s, nil
}

func constant(v any) *object {
	return &object{keys: []string{"const"}, values: map[string]any{"const": v}}
}

func (c *compiler) constantObject(v *object, path string) (*record, error) {
	none, err := c.add(false, path)
	if err != nil {
		return nil, err
	}
	layer := recordLayer{names: v.keys, props: map[string]conj{}, others: conj{none}, all: true, path: path}
	for _, name := range v.keys {
		id, err := c.add(constant(v.values[name]), join(path, name))
		if err != nil {
			return nil, err
		}
		layer.props[name] = conj{id}
	}
	return &record{min: len(v.keys), max: len(v.keys), required: v.keys, layers: []recordLayer{layer}}, nil
}

// spellings returns the spellings of a number: as in the schema, and as an integer if it is one.
func spellings(n json.Number) ([]string, bool) {
	r, ok := rational(n)
	if !ok {
		return nil, false
	}
	list := []string{n.String()}
	if r.IsInt() {
		if text := r.Num().String(); text != list[0] && len(text) < 40 {
			list = append(list, text)
		}
	}
	return list, true
}
