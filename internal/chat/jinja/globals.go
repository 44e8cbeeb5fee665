package jinja

import (
	"math"
)

// global finds a name that every template has.
func global(name string) (Value, bool) {
	switch name {
	case "range":
		return &callable{name, makeRange}, true
	case "dict":
		return &callable{name, func(st *state, c *args) (Value, error) { return makeDict(st, c) }}, true
	case "namespace":
		return &callable{name, makeNamespace}, true
	case "cycler":
		return &callable{name, makeCycler}, true
	case "joiner":
		return &callable{name, makeJoiner}, true
	case "lipsum":
		return &callable{name, func(*state, *args) (Value, error) {
			return nil, failf(KindRuntime, "lipsum is not supported")
		}}, true
	case "raise_exception":
		return &callable{name, raiseException}, true
	case "strftime_now":
		return &callable{name, strftimeNow}, true
	}
	return nil, false
}

func raiseException(st *state, c *args) (Value, error) {
	a, err := c.bind(1, "message")
	if err != nil {
		return nil, err
	}
	message, err := str(st, a[0])
	if err != nil {
		return nil, err
	}
	return nil, failf(KindRaise, "%s", message)
}

func strftimeNow(st *state, c *args) (Value, error) {
	a, err := c.bind(1, "format")
	if err != nil {
		return nil, err
	}
	layout, err := textArg(a[0], "")
	if err != nil {
		return nil, err
	}
	return made(st, "", strftime(st.now, layout))
}

func makeRange(_ *state, c *args) (Value, error) {
	if err := c.positional(1, 3); err != nil {
		return nil, err
	}
	bounds := make([]int64, len(c.pos))
	for i, v := range c.pos {
		var err error
		if bounds[i], err = intArg(v, 0); err != nil {
			return nil, err
		}
		if bounds[i] > math.MaxInt64/4 || bounds[i] < math.MinInt64/4 {
			return nil, typeErrorf("Python int too large to convert to C ssize_t")
		}
	}
	r := &rangeValue{stop: bounds[0], step: 1}
	if len(bounds) > 1 {
		r.start, r.stop = bounds[0], bounds[1]
	}
	if len(bounds) > 2 {
		r.step = bounds[2]
	}
	switch {
	case r.step == 0:
		return nil, typeErrorf("range() arg 3 must not be zero")
	case r.step > 0 && r.start < r.stop:
		r.n = (r.stop-r.start-1)/r.step + 1
	case r.step < 0 && r.start > r.stop:
		r.n = (r.start-r.stop-1)/-r.step + 1
	}
	if r.n > maxRange {
		return nil, typeErrorf("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r, nil
}

func makeNamespace(st *state, c *args) (Value, error) {
	attrs, err := makeDict(st, c)
	if err != nil {
		return nil, err
	}
	ns := &namespace{attrs: &Dict{}}
	for i, k := range attrs.keys {
		name, ok := text(k)
		if !ok {
			ns.attrs.set(k, attrs.vals[i])
			continue
		}
		if err := ns.setAttr(name, attrs.vals[i]); err != nil {
			return nil, err
		}
	}
	return ns, nil
}

// setAttr sets an attribute. It rejects names with a leading underscore.
func (ns *namespace) setAttr(name string, v Value) error {
	if len(name) > 0 && name[0] == '_' {
		return failf(KindSecurity, "Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s.", quote(name))
	}
	ns.attrs.Set(name, v)
	return nil
}

// cycler returns its items in turn.
type cycler struct {
	items []Value
	pos   int
}

func makeCycler(_ *state, c *args) (Value, error) {
	if len(c.names) > 0 || len(c.pos) == 0 {
		return nil, typeErrorf("at least one item has to be provided")
	}
	return &cycler{items: c.pos}, nil
}

func (cy *cycler) attr(name string) (Value, bool, error) {
	switch name {
	case "current":
		return cy.items[cy.pos], true, nil
	case "pos":
		return int64(cy.pos), true, nil
	case "items":
		return &Tuple{Items: cy.items}, true, nil
	case "next":
		return &callable{name, func(_ *state, c *args) (Value, error) {
			v := cy.items[cy.pos]
			cy.pos = (cy.pos + 1) % len(cy.items)
			return v, c.positional(0, 0)
		}}, true, nil
	case "reset":
		return &callable{name, func(_ *state, c *args) (Value, error) {
			cy.pos = 0
			return nil, c.positional(0, 0)
		}}, true, nil
	}
	return nil, false, nil
}

// makeJoiner makes a function that returns nothing at first and sep from then on.
func makeJoiner(_ *state, c *args) (Value, error) {
	a, err := c.bind(0, "sep")
	if err != nil {
		return nil, err
	}
	sep := a[0]
	if sep == missing {
		sep = ", "
	}
	used := false
	return &callable{"joiner", func(_ *state, c *args) (Value, error) {
		if err := c.positional(0, 0); err != nil {
			return nil, err
		}
		if !used {
			used = true
			return "", nil
		}
		return sep, nil
	}}, nil
}
