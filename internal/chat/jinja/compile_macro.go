package jinja

// macroCode is a compiled macro, call block or generation block.
type macroCode struct {
	name     string
	params   []string
	slots    []int    // of the params
	defaults []evalFn // nil where a param has none
	caller   int      // slots of the special variables, -1 if the body uses none
	kwargs   int
	varargs  int
	fn       *function
	init     func(e *env)
	body     execFn
	line     int
}

// macro is a macro at run time: its code and the variables around it.
type macro struct {
	def *macroCode
	env *env
}

func (c *compiler) macroCode(def *macroDef, line int, f frame) *macroCode {
	in := f.innerFunction()
	in.macro(def)
	m := &macroCode{name: def.name, params: def.params, line: line,
		caller: -1, kwargs: -1, varargs: -1, fn: in.symbols.frame.fn}
	hasParam := func(name string) int {
		for i, p := range def.params {
			if p == name {
				return i
			}
		}
		return -1
	}
	special := func(name string) int {
		in.param(name)
		return in.variable(name).slot
	}
	for i, name := range def.params {
		m.slots = append(m.slots, in.variable(name).slot)
		var eval evalFn
		if d := i - (len(def.params) - len(def.defaults)); d >= 0 {
			eval = c.expr(def.defaults[d], in)
		}
		m.defaults = append(m.defaults, eval)
	}
	if mentions(def.body, "caller") {
		if i := hasParam("caller"); i < 0 {
			m.caller = special("caller")
		} else if m.defaults[i] == nil {
			c.fail(line, `When defining macros or call blocks the special "caller" argument must be omitted or be given a default.`)
		}
	}
	if mentions(def.body, "kwargs") && hasParam("kwargs") < 0 {
		m.kwargs = special("kwargs")
	}
	if mentions(def.body, "varargs") && hasParam("varargs") < 0 {
		m.varargs = special("varargs")
	}
	m.body = c.statements(def.body, in)
	m.init = in.enter()
	return m
}

func (c *compiler) macro(s *macroStmt, f frame) execFn {
	code := c.macroCode(&s.macroDef, s.stmtLine(), f)
	ref := f.variable(s.name)
	return func(e *env) (signal, error) {
		m := &macro{code, e}
		ref.set(e, m)
		if f.toplevel {
			e.st.export(s.name, m)
		}
		return sigNone, nil
	}
}

func (c *compiler) callBlock(s *callStmt, f frame) execFn {
	code := c.macroCode(&s.macroDef, s.stmtLine(), f)
	call := c.call(s.call, f, true)
	return func(e *env) (signal, error) {
		v, err := call(e, &macro{code, e})
		if err == nil {
			err = e.st.writeValue(v)
		}
		return sigNone, atLine(err, s.stmtLine())
	}
}

// generation compiles a generation block, which marks the model's answer. It is a function like a call block's,
// so its variables are its own, but prints its body in place.
func (c *compiler) generation(s *generationStmt, f frame) execFn {
	code := c.macroCode(&s.macroDef, s.stmtLine(), f)
	return func(e *env) (signal, error) {
		v, err := (&macro{code, e}).call(e.st, &args{name: "generation"})
		if err == nil {
			out, _ := text(v)
			err = e.st.writeGeneration(out)
		}
		return sigNone, atLine(err, s.stmtLine())
	}
}

// writeGeneration writes the text of a generation block and records its place.
func (st *state) writeGeneration(text string) error {
	if st.out != st.root {
		st.displaced = true
	} else if text != "" {
		st.generations = append(st.generations, [2]int{st.out.Len(), st.out.Len() + len(text)})
	}
	return st.write(text)
}

// call binds the arguments as Jinja's Macro does and returns the text of the body.
func (m *macro) call(st *state, c *args) (Value, error) {
	if err := st.enter(); err != nil {
		return nil, err
	}
	defer st.leave()
	if err := st.work(callSteps); err != nil {
		return nil, err
	}
	d := m.def
	e := newEnv(st, d.fn, m.env)
	if err := m.bind(e, c); err != nil {
		return nil, err
	}
	d.init(e)
	for i, slot := range d.slots {
		if e.vars[slot] != missing {
			continue
		}
		if d.defaults[i] == nil {
			e.vars[slot] = undef("parameter '%s' was not provided", d.params[i])
			continue
		}
		v, err := d.defaults[i](e)
		if err != nil {
			return nil, err
		}
		e.vars[slot] = v
	}
	text, err := st.capture(func() error {
		_, err := d.body(e)
		return err
	})
	return st.rendered(text), err
}

func (m *macro) bind(e *env, c *args) error {
	d := m.def
	n := min(len(c.pos), len(d.params))
	for i := range n {
		e.vars[d.slots[i]] = c.pos[i]
	}
	rest := &Dict{}
	for i, name := range c.names {
		rest.Set(name, c.values[i])
	}
	foundCaller := false
	for i, name := range d.params {
		if name == "caller" {
			foundCaller = true
		}
		if i >= n {
			if v, ok := rest.remove(name); ok {
				e.vars[d.slots[i]] = v
			}
		}
	}
	if d.caller >= 0 && !foundCaller {
		v, ok := rest.remove("caller")
		if !ok || v == nil {
			v = undef("No caller defined")
		}
		e.vars[d.caller] = v
	}
	switch {
	case d.kwargs >= 0:
		e.vars[d.kwargs] = rest
	case rest.Len() > 0:
		name, _ := text(rest.keys[0])
		return typeErrorf("macro '%s' takes no keyword argument '%s'", d.name, name)
	}
	switch {
	case d.varargs >= 0:
		e.vars[d.varargs] = &Tuple{Items: c.pos[n:]}
	case len(c.pos) > n:
		return typeErrorf("macro '%s' takes not more than %d argument(s)", d.name, len(d.params))
	}
	return nil
}

// remove takes an entry out of a small dict of the engine's own.
func (d *Dict) remove(key string) (Value, bool) {
	v, ok := d.Get(key)
	if !ok {
		return nil, false
	}
	kept := &Dict{}
	for i, k := range d.keys {
		if k != Value(key) {
			kept.set(k, d.vals[i])
		}
	}
	*d = *kept
	return v, true
}

// attr returns an attribute of a macro.
func (m *macro) attr(name string) (Value, bool) {
	switch name {
	case "name":
		if m.def.name == "" {
			return nil, true
		}
		return m.def.name, true
	case "arguments":
		t := &Tuple{}
		for _, p := range m.def.params {
			t.Items = append(t.Items, p)
		}
		return t, true
	case "catch_kwargs":
		return m.def.kwargs >= 0, true
	case "catch_varargs":
		return m.def.varargs >= 0, true
	case "caller":
		return m.def.caller >= 0, true
	}
	return nil, false
}
