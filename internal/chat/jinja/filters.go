package jinja

// filterFunc is a filter of the value v.
type filterFunc func(st *state, v Value, c *args) (Value, error)

// filterNamed returns a filter, or nil if there is none. The filters are Jinja2's, with the tojson
// of chat templates.
func filterNamed(name string) filterFunc {
	for _, find := range []func(string) filterFunc{textFilter, sequenceFilter, selectingFilter, numberFilter} {
		if f := find(name); f != nil {
			return f
		}
	}
	return nil
}

// softText returns the text of v, which keeps being Markup if it is.
func softText(st *state, v Value) (Value, string, error) {
	if s, ok := text(v); ok {
		return v, s, nil
	}
	s, err := str(st, v)
	return s, s, err
}

// viaMethod returns a filter that is a method of str with arguments params.
func viaMethod(method string, params ...string) filterFunc {
	return func(st *state, v Value, c *args) (Value, error) {
		a, err := c.bind(0, params...)
		if err != nil {
			return nil, err
		}
		v, s, err := softText(st, v)
		if err != nil {
			return nil, err
		}
		call := &args{name: method}
		for _, arg := range a {
			if arg != missing {
				call.pos = append(call.pos, arg)
			}
		}
		return stringMethod(method)(st, v, s, call)
	}
}

func filterDefault(_ *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, isUndef := v.(*undefined)
	if isUndef || a[1] != missing && truth(a[1]) && !truth(v) {
		if a[0] == missing {
			return "", nil
		}
		return a[0], nil
	}
	return v, nil
}

func filterAttr(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(1, "name")
	if err != nil {
		return nil, err
	}
	name, err := textArg(a[0], "")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	attr, ok, err := attribute(st, v, name)
	if !ok && err == nil {
		return lacking(v, name), nil
	}
	return attr, err
}

// path returns an attribute argument of map, sort and the like: names and indices
// parted by dots.
func path(attribute Value) []Value {
	s, ok := text(attribute)
	if !ok {
		if attribute == nil || attribute == missing {
			return nil
		}
		return []Value{attribute}
	}
	return dotted(s)
}

// getter returns a function that follows a path. With fold it returns strings in lower case. If an
// attribute does not exist it returns otherwise, unless that is missing.
func getter(st *state, attribute Value, fold bool, otherwise Value) func(v Value) (Value, error) {
	parts := path(attribute)
	return func(v Value) (Value, error) {
		for _, part := range parts {
			err := st.work(1)
			if err != nil {
				return nil, err
			}
			if v, err = getItem(st, v, part); err != nil {
				return nil, err
			}
			if _, isUndef := v.(*undefined); isUndef && otherwise != missing && otherwise != nil {
				v = otherwise
			}
		}
		if fold {
			return foldCase(st, v)
		}
		return v, nil
	}
}

func foldCase(st *state, v Value) (Value, error) {
	if s, ok := text(v); ok {
		return like(v, lower(s)), st.grow(len(s))
	}
	return v, nil
}
