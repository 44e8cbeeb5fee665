package jinja

func selectingFilter(name string) filterFunc {
	switch name {
	case "map":
		return filterMap
	case "select":
		return selecting(false, true)
	case "reject":
		return selecting(false, false)
	case "selectattr":
		return selecting(true, true)
	case "rejectattr":
		return selecting(true, false)
	}
	return nil
}

// deferred returns a generator over v that creates its function when the first item is
// asked for, and has no items at all if v is false.
func deferred(st *state, name string, v Value, prepare func() (func(Value) (Value, bool, error), error)) Value {
	var items *generator
	return newGenerator("generator", v, func() (Value, bool, error) {
		if !truth(v) {
			return nil, false, nil
		}
		if items == nil {
			f, err := prepare()
			if err != nil {
				return nil, false, err
			}
			items = lazily(st, name, v, f).(*generator)
		}
		return items.next()
	})
}

// filterMap follows an attribute of every item, or applies a filter to it.
func filterMap(st *state, v Value, c *args) (Value, error) {
	return deferred(st, "map", v, func() (func(Value) (Value, bool, error), error) {
		named := c.named()
		if attribute, ok := named.Get("attribute"); ok && len(c.pos) == 0 {
			a, err := c.bind(0, "attribute", "default")
			if err != nil {
				return nil, failf(KindRuntime, "map: unexpected keyword argument")
			}
			get := getter(st, attribute, false, a[1])
			return func(item Value) (Value, bool, error) {
				out, err := get(item)
				return out, err == nil, err
			}, nil
		}
		if len(c.pos) == 0 {
			return nil, failf(KindRuntime, "map requires a filter argument")
		}
		name, err := textArg(c.pos[0], "")
		if err != nil {
			return nil, err
		}
		filter := filterNamed(name)
		if filter == nil {
			filter = func(*state, Value, *args) (Value, error) {
				return nil, failf(KindRuntime, "No filter named '%s'.", name)
			}
		}
		return func(item Value) (Value, bool, error) {
			out, err := filter(st, item, &args{name: name, pos: c.pos[1:], names: c.names, values: c.values})
			return out, err == nil, err
		}, nil
	}), nil
}

// selecting returns select, reject, selectattr or rejectattr. It keeps items for which the test's
// result is keep.
func selecting(byAttribute, keep bool) filterFunc {
	return func(st *state, v Value, c *args) (Value, error) {
		return deferred(st, "select", v, func() (func(Value) (Value, bool, error), error) {
			pos := c.pos
			get := func(item Value) (Value, error) { return item, nil }
			if byAttribute {
				if len(pos) == 0 {
					return nil, failf(KindRuntime, "Missing parameter for attribute name")
				}
				get = getter(st, pos[0], false, missing)
				pos = pos[1:]
			}
			test := func(_ *state, v Value, _ *args) (bool, error) { return truth(v), nil }
			name := ""
			if len(pos) > 0 {
				var err error
				if name, err = textArg(pos[0], ""); err != nil {
					return nil, err
				}
				if test = testNamed(name); test == nil {
					test = func(*state, Value, *args) (bool, error) {
						return false, failf(KindRuntime, "No test named '%s'.", name)
					}
				}
				pos = pos[1:]
			}
			call := &args{name: name, pos: pos, names: c.names, values: c.values}
			return func(item Value) (Value, bool, error) {
				of, err := get(item)
				if err != nil {
					return nil, false, err
				}
				ok, err := test(st, of, call)
				return item, ok == keep && err == nil, err
			}, nil
		}), nil
	}
}
