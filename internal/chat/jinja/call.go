package jinja

import "slices"

// args are the arguments of one call. The slices, except pos, may be shared with the template and
// must not be changed.
type args struct {
	name   string // of the function, for messages
	pos    []Value
	names  []string
	values []Value
}

// bind matches the arguments with params, of which the first required must be given. Arguments that
// are not given are missing.
func (a *args) bind(required int, params ...string) ([]Value, error) {
	if len(a.pos) > len(params) {
		return nil, typeErrorf("%s() takes at most %d arguments (%d given)", a.name, len(params), len(a.pos))
	}
	out := make([]Value, len(params))
	copy(out, a.pos)
	for i := len(a.pos); i < len(out); i++ {
		out[i] = missing
	}
	for i, name := range a.names {
		k := slices.Index(params, name)
		if k < 0 {
			return nil, typeErrorf("%s() got an unexpected keyword argument '%s'", a.name, name)
		}
		if out[k] != missing {
			return nil, typeErrorf("%s() got multiple values for argument '%s'", a.name, name)
		}
		out[k] = a.values[i]
	}
	for i := range required {
		if out[i] == missing {
			return nil, typeErrorf("%s() missing required argument '%s'", a.name, params[i])
		}
	}
	return out, nil
}

// positional checks the number of arguments of a function that takes no names.
func (a *args) positional(least, most int) error {
	if len(a.names) > 0 {
		return typeErrorf("%s() takes no keyword arguments", a.name)
	}
	if n := len(a.pos); n < least || n > most {
		return typeErrorf("%s() takes %d to %d arguments (%d given)", a.name, least, most, n)
	}
	return nil
}

// addNamed adds a keyword argument.
func (a *args) addNamed(name string, v Value) error {
	if slices.Contains(a.names, name) {
		return typeErrorf("%s() got multiple values for keyword argument '%s'", a.name, name)
	}
	a.names = append(slices.Clone(a.names), name)
	a.values = append(slices.Clone(a.values), v)
	return nil
}

// addDict adds the entries of a mapping as keyword arguments.
func (a *args) addDict(v Value) error {
	d, ok := v.(*Dict)
	if u, ok := v.(*undefined); ok {
		return u.err()
	}
	if !ok {
		return typeErrorf("%s() argument after ** must be a mapping, not %s", a.name, typeName(v))
	}
	for i, k := range d.keys {
		name, ok := text(k)
		if !ok {
			return typeErrorf("keywords must be strings")
		}
		if err := a.addNamed(name, d.vals[i]); err != nil {
			return err
		}
	}
	return nil
}

// named returns the keyword arguments as a dict.
func (a *args) named() *Dict {
	d := &Dict{}
	for i, name := range a.names {
		d.Set(name, a.values[i])
	}
	return d
}

// call calls any value.
func call(st *state, fn Value, a *args) (Value, error) {
	switch fn := fn.(type) {
	case *callable:
		a.name = fn.name
		return fn.fn(st, a)
	case *macro:
		return fn.call(st, a)
	case *loopContext:
		a.name = "loop"
		return fn.call(st, a)
	case *undefined:
		return nil, fn.err()
	}
	return nil, typeErrorf("'%s' object is not callable", typeName(fn))
}

// intArg reads an int argument that may be missing.
func intArg(v Value, otherwise int64) (int64, error) {
	if v == missing {
		return otherwise, nil
	}
	if u, ok := v.(*undefined); ok {
		return 0, u.err()
	}
	if i, ok := integer(v); ok {
		return i, nil
	}
	return 0, typeErrorf("'%s' object cannot be interpreted as an integer", typeName(v))
}

// textArg reads a str argument that may be missing.
func textArg(v Value, otherwise string) (string, error) {
	if v == missing {
		return otherwise, nil
	}
	if u, ok := v.(*undefined); ok {
		return "", u.err()
	}
	if s, ok := text(v); ok {
		return s, nil
	}
	return "", typeErrorf("expected str, not %s", typeName(v))
}
