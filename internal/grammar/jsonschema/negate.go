package jsonschema

import "slices"

// not reads not.
func (r *reader) not(s *set) (*set, error) {
	v, ok := r.o.get("not")
	if !ok {
		return s, nil
	}
	t, err := r.negation(v, join(r.path, "not"))
	if err != nil {
		return nil, err
	}
	return r.c.both(s, t, r.path)
}

// condition reads if, then and else.
func (r *reader) condition(s *set) (*set, error) {
	v, ok := r.o.get("if")
	_, then := r.o.get("then")
	_, otherwise := r.o.get("else")
	if !ok || !then && !otherwise {
		return s, nil
	}
	path := join(r.path, "if")
	branch := func(keyword string, when *set) (*set, error) {
		sub, ok := r.o.get(keyword)
		if !ok {
			return when, nil
		}
		k, err := r.sub(sub, join(r.path, keyword))
		if err != nil {
			return nil, err
		}
		t, err := r.c.normal(k)
		if err != nil {
			return nil, err
		}
		return r.c.both(when, t, r.path)
	}
	k, err := r.sub(v, path)
	if err != nil {
		return nil, err
	}
	holds, err := r.c.normal(k)
	if err != nil {
		return nil, err
	}
	fails, err := r.negation(v, path)
	if err != nil {
		return nil, err
	}
	a, err := branch("then", holds)
	if err != nil {
		return nil, err
	}
	b, err := branch("else", fails)
	if err != nil {
		return nil, err
	}
	return r.any(s, []*set{a, b}, "if")
}

// negation returns the set of values that do not satisfy a schema.
func (r *reader) negation(v any, path string) (*set, error) {
	k, err := r.sub(v, path)
	if err != nil {
		return nil, err
	}
	s, err := r.c.normal(k)
	if err != nil {
		return nil, err
	}
	out := &set{null: !s.null, yes: !s.yes, no: !s.no}
	rest := &number{not: s.numbers}
	if !slices.ContainsFunc(s.numbers, func(n *number) bool { return n.free() }) {
		out.numbers = []*number{rest}
	}
	if !slices.ContainsFunc(s.strings, func(t *str) bool { return t.free() }) {
		out.strings = []*str{{max: -1, not: s.strings}}
	}
	out.arrays = []*array{{max: -1}}
	for _, a := range s.arrays {
		n, ok := a.negate()
		if !ok {
			return nil, fail(path, "the opposite of a schema of arrays with items is not supported")
		}
		if out.arrays, err = cross(out.arrays, n, (*array).and, path); err != nil {
			return nil, err
		}
	}
	out.objects = []*record{{max: -1}}
	for _, o := range s.objects {
		n, err := r.c.negateRecord(o, path)
		if err != nil {
			return nil, err
		}
		if out.objects, err = cross(out.objects, n, (*record).and, path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cross intersects alternatives.
func cross[T any](a, b []*T, and func(x, y *T) *T, path string) ([]*T, error) {
	var out []*T
	if len(a)*len(b) > maxAlternatives {
		return nil, fail(path, "the schema has too many alternatives")
	}
	for _, x := range a {
		for _, y := range b {
			if z := and(x, y); z != nil {
				out = append(out, z)
			}
		}
	}
	return out, nil
}

// free reports whether n allows all numbers.
func (n *number) free() bool {
	return !n.integer && n.min == nil && n.max == nil && len(n.multiple) == 0 && n.texts == nil && len(n.not) == 0
}

func (s *str) free() bool {
	return s.texts == nil && s.min == 0 && s.max < 0 && len(s.patterns)+len(s.formats)+len(s.not) == 0
}

// negate returns the arrays that a does not allow.
func (a *array) negate() (list []*array, ok bool) {
	if len(a.layers)+len(a.contains) > 0 || a.unique != "" {
		return nil, false
	}
	if a.min > 0 {
		list = append(list, &array{max: a.min - 1})
	}
	if a.max >= 0 {
		list = append(list, &array{min: a.max + 1, max: -1})
	}
	return list, true
}

// negateRecord returns the objects that o does not allow. Each breaks one of o's rules.
func (c *compiler) negateRecord(o *record, path string) ([]*record, error) {
	if o.names != nil {
		return nil, fail(path, "the opposite of propertyNames is not supported")
	}
	none, err := c.add(false, path)
	if err != nil {
		return nil, err
	}
	var list []*record
	for _, name := range o.required {
		layer := recordLayer{names: []string{name}, props: map[string]conj{name: {none}}, path: path}
		list = append(list, &record{max: -1, layers: []recordLayer{layer}})
	}
	if o.min > 0 {
		list = append(list, &record{max: o.min - 1})
	}
	if o.max >= 0 {
		list = append(list, &record{min: o.max + 1, max: -1, minPath: path})
	}
	for _, l := range o.layers {
		if len(l.patterns) > 0 || len(l.others) > 0 {
			return nil, fail(path, "the opposite of patternProperties and additionalProperties is not supported")
		}
		for _, name := range l.names {
			k, err := c.opposite(l.props[name], path)
			if err != nil {
				return nil, err
			}
			layer := recordLayer{names: []string{name}, props: map[string]conj{name: k}, path: path}
			list = append(list, &record{max: -1, required: []string{name}, layers: []recordLayer{layer}})
		}
	}
	return list, nil
}

// opposite returns a node for the values that do not satisfy k.
func (c *compiler) opposite(k conj, path string) (conj, error) {
	if len(k) == 0 {
		id, err := c.add(false, path)
		return conj{id}, err
	}
	all := make([]any, len(k))
	for i, id := range k {
		all[i] = c.nodes[id].v
	}
	inner := &object{keys: []string{"allOf"}, values: map[string]any{"allOf": all}}
	id, err := c.add(&object{keys: []string{"not"}, values: map[string]any{"not": inner}}, path)
	return conj{id}, err
}
