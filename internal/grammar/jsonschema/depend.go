package jsonschema

// dependencies reads dependentRequired, dependentSchemas and the older dependencies.
func (r *reader) dependencies(s *set) (*set, error) {
	for _, keyword := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		v, ok := r.o.get(keyword)
		if !ok {
			continue
		}
		path := join(r.path, keyword)
		o, ok := v.(*object)
		if !ok {
			return nil, fail(path, "want an object")
		}
		for _, name := range o.keys {
			var err error
			if s, err = r.dependency(s, name, o.values[name], join(path, name)); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// dependency splits the objects of s: those without a property, and those with it that satisfy v.
func (r *reader) dependency(s *set, name string, v any, path string) (*set, error) {
	none, err := r.c.add(false, path)
	if err != nil {
		return nil, err
	}
	without := &record{max: -1, layers: []recordLayer{{names: []string{name}, props: map[string]conj{name: {none}}, path: path}}}
	with := &set{objects: []*record{{max: -1, required: []string{name}}}}
	if list, ok := v.([]any); ok {
		names, err := nameList(list, path)
		if err != nil {
			return nil, err
		}
		if more := with.objects[0].and(&record{max: -1, required: names}); more != nil {
			with.objects[0] = more
		}
	} else {
		k, err := r.sub(v, path)
		if err != nil {
			return nil, err
		}
		t, err := r.c.normal(k)
		if err != nil {
			return nil, err
		}
		if with, err = r.c.both(with, t, path); err != nil {
			return nil, err
		}
	}
	either := *anySet
	either.objects = append([]*record{without}, with.objects...)
	return r.c.both(s, &either, path)
}

// mixed are keywords that make it depend on the document which properties another keyword has seen.
var mixed = []string{"anyOf", "if", "dependentSchemas", "not"}

// unevaluated reads unevaluatedProperties and checks unevaluatedItems.
func (r *reader) unevaluated(s *set) (*set, error) {
	if _, ok := r.o.get("unevaluatedItems"); ok {
		for _, keyword := range append([]string{"allOf", "oneOf", "$ref", "contains"}, mixed...) {
			if _, both := r.o.get(keyword); both {
				return nil, fail(join(r.path, "unevaluatedItems"), "it is not supported together with %s", keyword)
			}
		}
	}
	v, ok := r.o.get("unevaluatedProperties")
	if !ok {
		return s, nil
	}
	path := join(r.path, "unevaluatedProperties")
	k, err := r.sub(v, path)
	if err != nil || len(k) == 0 {
		return s, err
	}
	for _, keyword := range mixed {
		if _, both := r.o.get(keyword); both {
			return nil, fail(path, "it is not supported together with %s", keyword)
		}
	}
	out := *s
	out.objects = nil
	for _, o := range s.objects {
		out.objects = append(out.objects, o.closed(k, path))
	}
	return &out, nil
}

// closed returns o with a schema for the properties that no layer concerns.
func (r *record) closed(others conj, path string) *record {
	layer := recordLayer{props: map[string]conj{}, others: others, all: true, path: path}
	for _, l := range r.layers {
		if l.all {
			return r
		}
		for _, name := range l.names {
			layer.names = append(layer.names, name)
			layer.props[name] = nil
		}
		for _, p := range l.patterns {
			layer.patterns = append(layer.patterns, pattern{p.place, nil})
		}
	}
	out := *r
	out.layers = append(append([]recordLayer(nil), r.layers...), layer)
	return &out
}
