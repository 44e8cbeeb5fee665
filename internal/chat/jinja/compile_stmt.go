package jinja

func (a access) set(e *env, v Value) {
	for range a.hops {
		e = e.up
	}
	e.vars[a.slot] = v
}

func (c *compiler) output(s *outputStmt, f frame) execFn {
	type part struct {
		text string
		eval evalFn
		line int
	}
	var parts []part
	for _, x := range s.items {
		if data, ok := x.(*dataExpr); ok {
			parts = append(parts, part{text: data.text})
		} else if text, ok := c.constantOutput(x, f); ok {
			parts = append(parts, part{text: text})
		} else {
			parts = append(parts, part{eval: c.expr(x, f), line: x.exprLine()})
		}
	}
	return func(e *env) (signal, error) {
		for i := range parts {
			p := &parts[i]
			s := p.text
			if p.eval != nil {
				v, err := p.eval(e)
				if err == nil {
					s, err = f.escape.print(e.st, v)
				}
				if err != nil {
					return sigNone, atLine(err, p.line)
				}
			}
			if err := e.st.write(s); err != nil {
				return sigNone, err
			}
		}
		return sigNone, nil
	}
}

func (c *compiler) ifBlock(s *ifStmt, f frame) execFn {
	type arm struct {
		test evalFn
		body execFn
		line int
	}
	var arms []arm
	for _, node := range append([]*ifStmt{s}, s.elifs...) {
		arms = append(arms, arm{c.expr(node.test, f), c.statements(node.body, f), node.stmtLine()})
	}
	other := c.statements(s.other, f)
	return func(e *env) (signal, error) {
		for i := range arms {
			v, err := arms[i].test(e)
			if err != nil {
				return sigNone, atLine(err, arms[i].line)
			}
			if truth(v) {
				return arms[i].body(e)
			}
		}
		return other(e)
	}
}

func (c *compiler) set(s *setStmt, f frame) execFn {
	check := c.checkNamespaces(s.target, f)
	value := c.expr(s.value, f)
	assign := c.assign(s.target, f)
	return func(e *env) (signal, error) {
		err := check(e)
		if err == nil {
			var v Value
			if v, err = value(e); err == nil {
				err = assign(e, v)
			}
		}
		return sigNone, atLine(err, s.stmtLine())
	}
}

// checkNamespaces checks, before any assignment, that targets with attributes are namespaces.
func (c *compiler) checkNamespaces(target expr, f frame) func(e *env) error {
	var refs []access
	var find func(x expr)
	find = func(x expr) {
		switch x := x.(type) {
		case *nsRef:
			refs = append(refs, f.variable(x.name))
		case *tupleExpr:
			for _, item := range x.items {
				find(item)
			}
		}
	}
	find(target)
	return func(e *env) error {
		for _, ref := range refs {
			if _, ok := ref.get(e).(*namespace); !ok {
				return failf(KindRuntime, "cannot assign attribute on non-namespace object")
			}
		}
		return nil
	}
}

// assign compiles the left side of an assignment.
func (c *compiler) assign(target expr, f frame) func(e *env, v Value) error {
	switch x := target.(type) {
	case *nameExpr:
		ref := f.variable(x.name)
		if f.toplevel {
			return func(e *env, v Value) error {
				ref.set(e, v)
				e.st.export(x.name, v)
				return nil
			}
		}
		return func(e *env, v Value) error {
			ref.set(e, v)
			return nil
		}
	case *nsRef:
		ref := f.variable(x.name)
		return func(e *env, v Value) error {
			ns, ok := ref.get(e).(*namespace)
			if !ok {
				return failf(KindRuntime, "cannot assign attribute on non-namespace object")
			}
			return ns.setAttr(x.attr, v)
		}
	case *tupleExpr:
		var parts []func(e *env, v Value) error
		for _, item := range x.items {
			parts = append(parts, c.assign(item, f))
		}
		return func(e *env, v Value) error {
			items, err := unpack(e.st, v, len(parts))
			if err != nil {
				return err
			}
			for i, part := range parts {
				if err := part(e, items[i]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	c.fail(target.exprLine(), "can't assign to this expression")
	return nil
}

// export makes a variable of the top level visible to blocks.
func (st *state) export(name string, v Value) {
	if len(st.blocks) > 0 {
		st.set[name] = v
	}
}

// unpack takes exactly n items out of v.
func unpack(st *state, v Value, n int) ([]Value, error) {
	if t, ok := v.(*Tuple); ok && len(t.Items) == n {
		return t.Items, nil
	}
	it, err := iterate(st, v)
	if err != nil {
		if _, isUndef := v.(*undefined); isUndef {
			return nil, err
		}
		return nil, typeErrorf("cannot unpack non-iterable %s object", typeName(v))
	}
	items := make([]Value, 0, n)
	for {
		item, ok, err := it.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if len(items) == n {
			return nil, typeErrorf("too many values to unpack (expected %d)", n)
		}
		items = append(items, item)
	}
	if len(items) < n {
		return nil, typeErrorf("not enough values to unpack (expected %d, got %d)", n, len(items))
	}
	return items, nil
}

func (c *compiler) setBlock(s *setBlockStmt, f frame) execFn {
	check := c.checkNamespaces(s.target, f)
	in := f.inner()
	in.statements(s.body)
	if s.filter != nil {
		in.expr(s.filter)
	}
	capture := c.captured(s.body, s.filter, in)
	assign := c.assign(s.target, f)
	return func(e *env) (signal, error) {
		v, sig, err := capture(e)
		if err != nil || sig != sigNone {
			return sig, atLine(err, s.stmtLine())
		}
		if err = check(e); err == nil {
			v, err = e.st.safe(v)
		}
		if err == nil {
			err = assign(e, v)
		}
		return sigNone, atLine(err, s.stmtLine())
	}
}

// captured compiles the body of a set or filter block in its own frame: it runs
// the body, catches its output and passes it through the filters. A break or
// continue in the body discards the output.
func (c *compiler) captured(body []stmt, x *filterExpr, in frame) func(e *env) (Value, signal, error) {
	run := c.statements(body, in)
	filter := c.capturedFilter(x, in)
	init := in.enter()
	return func(e *env) (Value, signal, error) {
		init(e)
		sig := sigNone
		text, err := e.st.capture(func() (err error) {
			sig, err = run(e)
			return err
		})
		if err != nil || sig != sigNone {
			return nil, sig, err
		}
		v, err := filter(e, in.escape.text(e.st, text))
		return v, sigNone, err
	}
}

// capturedFilter compiles a chain of filters whose input is the output of a block. Without filters
// it returns the output.
func (c *compiler) capturedFilter(x *filterExpr, f frame) func(e *env, text Value) (Value, error) {
	if x == nil {
		return func(_ *env, text Value) (Value, error) { return text, nil }
	}
	inner, _ := x.x.(*filterExpr)
	input := c.capturedFilter(inner, f)
	apply := c.filterCall(x, f)
	return func(e *env, text Value) (Value, error) {
		v, err := input(e, text)
		if err != nil {
			return nil, err
		}
		return apply(e, v)
	}
}

func (c *compiler) filterBlock(s *filterStmt, f frame) execFn {
	in := f.inner()
	in.statements(s.body)
	in.expr(s.filter)
	capture := c.captured(s.body, s.filter, in)
	return func(e *env) (signal, error) {
		v, sig, err := capture(e)
		if err != nil || sig != sigNone {
			return sig, atLine(err, s.stmtLine())
		}
		return sigNone, atLine(e.st.writeValue(v), s.stmtLine())
	}
}

// writeValue writes the result of a filter or call block, which must be a text.
func (st *state) writeValue(v Value) error {
	s, ok := text(v)
	if !ok {
		return typeErrorf("sequence item: expected str instance, %s found", typeName(v))
	}
	return st.write(s)
}

func (c *compiler) with(s *withStmt, f frame) execFn {
	in := f.inner()
	for _, t := range s.targets {
		in.target(t, true)
	}
	in.statements(s.body)
	var values []evalFn
	var assigns []func(e *env, v Value) error
	for i := range s.targets {
		values = append(values, c.expr(s.values[i], f))
		assigns = append(assigns, c.assign(s.targets[i], in))
	}
	body := c.statements(s.body, in)
	init := in.enter()
	return func(e *env) (signal, error) {
		init(e)
		for i := range values {
			v, err := values[i](e)
			if err == nil {
				err = assigns[i](e, v)
			}
			if err != nil {
				return sigNone, atLine(err, s.stmtLine())
			}
		}
		return body(e)
	}
}
