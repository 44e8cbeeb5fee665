package jinja

import "slices"

// escaping says what is known while compiling about the autoescape tags around a place: whether the
// last one with a constant argument turned escaping on, and whether one has an argument that only
// rendering knows.
type escaping struct{ on, volatile bool }

// always reports whether escaping is known to be on.
func (x escaping) always() bool { return x.on && !x.volatile }

// active reports whether escaping is on in a place while it renders.
func (x escaping) active(st *state) bool {
	if x.volatile {
		return st.escape
	}
	return x.on
}

// print returns what printing v in a place writes.
func (x escaping) print(st *state, v Value) (string, error) {
	s, err := str(st, v)
	if _, safe := v.(markup); safe || err != nil || !x.active(st) {
		return s, err
	}
	s = escapeHTML(s)
	return s, st.grow(len(s))
}

// text returns the text that a block wrote in a place: it is Markup if escaping is on there.
func (x escaping) text(st *state, s string) Value {
	if x.active(st) {
		return markup(s)
	}
	return s
}

// rendered returns the text of a macro or block called now.
func (st *state) rendered(s string) Value {
	if st.escape {
		return markup(s)
	}
	return s
}

// safe returns the value of a set block: Markup if escaping is on now.
func (st *state) safe(v Value) (Value, error) {
	if !st.escape {
		return v, nil
	}
	s, err := str(st, v)
	return markup(s), err
}

// autoescape compiles the autoescape tag. As in Jinja, a break or continue that leaves its body does
// not turn escaping back.
func (c *compiler) autoescape(s *autoescapeStmt, f frame) execFn {
	in := f.inner()
	in.expr(s.option)
	in.statements(s.body)
	option := c.expr(s.option, in)
	if v, ok := c.constant(s.option, f); ok {
		in.escape.on = truth(v)
	} else {
		in.escape.volatile = true
	}
	body := c.statements(s.body, in)
	init := in.enter()
	return func(e *env) (signal, error) {
		init(e)
		outer := e.st.escape
		on, err := option(e)
		if err != nil {
			return sigNone, atLine(err, s.stmtLine())
		}
		e.st.escape = truth(on)
		sig, err := body(e)
		if err == nil && sig == sigNone {
			e.st.escape = outer
		}
		return sig, err
	}
}

// concatenate returns values as one text.
func concatenate(st *state, vs []Value) (Value, error) {
	parts, err := texts(st, vs)
	if err != nil {
		return nil, err
	}
	return joinTexts(st, parts, "")
}

// joinSafely joins values with sep. If one of them or sep is Markup, the others are escaped, and the
// result is Markup.
func joinSafely(st *state, vs []Value, sep Value) (Value, error) {
	all := append(slices.Clone(vs), sep)
	parts, err := texts(st, all)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, isA[markup]) {
		return joinTexts(st, parts[:len(vs)], parts[len(vs)])
	}
	for i, v := range all {
		if !isA[markup](v) {
			parts[i] = escapeHTML(parts[i])
		}
	}
	out, err := joinTexts(st, parts[:len(vs)], parts[len(vs)])
	return markup(out), err
}

// texts returns what printing each value writes.
func texts(st *state, vs []Value) ([]string, error) {
	out := make([]string, len(vs))
	for i, v := range vs {
		var err error
		if out[i], err = str(st, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
