package jinja

func (c *compiler) expr(x expr, f frame) evalFn {
	if x == nil {
		return nil
	}
	defer func() { c.depth-- }()
	if !c.deeper(x.exprLine()) {
		return nil
	}
	if eval := c.folded(x, f); eval != nil {
		return eval
	}
	eval := c.expression(x, f)
	return func(e *env) (Value, error) {
		if err := e.st.work(1); err != nil {
			return nil, err
		}
		return eval(e)
	}
}

func (c *compiler) exprs(xs []expr, f frame) []evalFn {
	evals := make([]evalFn, len(xs))
	for i, x := range xs {
		evals[i] = c.expr(x, f)
	}
	return evals
}

func (c *compiler) expression(x expr, f frame) evalFn {
	switch x := x.(type) {
	case *constExpr:
		return c.literal(x.value, x.exprLine())
	case *nameExpr:
		return c.name(x, f)
	case *tupleExpr:
		items := c.exprs(x.items, f)
		return func(e *env) (Value, error) {
			vs, err := evalAll(e, items)
			return &Tuple{Items: vs}, err
		}
	case *listExpr:
		items := c.exprs(x.items, f)
		return func(e *env) (Value, error) {
			vs, err := evalAll(e, items)
			return &List{Items: vs}, err
		}
	case *dictExpr:
		return c.dict(x, f)
	case *unaryExpr:
		operand := c.expr(x.x, f)
		return func(e *env) (Value, error) {
			v, err := operand(e)
			if err != nil {
				return nil, err
			}
			return unary(x.op, v)
		}
	case *binaryExpr:
		return c.binary(x, f)
	case *concatExpr:
		return c.concat(x, f)
	case *compareExpr:
		return c.comparison(x, f)
	case *condExpr:
		return c.cond(x, f.softened())
	case *attrExpr:
		return c.attr(x, f)
	case *itemExpr:
		return c.item(x, f)
	case *callExpr:
		call := c.call(x, f, false)
		return func(e *env) (Value, error) { return call(e, nil) }
	case *filterExpr:
		input := c.expr(x.x, f)
		apply := c.filterCall(x, f)
		return func(e *env) (Value, error) {
			v, err := input(e)
			if err != nil {
				return nil, err
			}
			return apply(e, v)
		}
	case *testExpr:
		return c.test(x, f)
	}
	c.fail(x.exprLine(), "a slice or assignment target is no expression")
	return nil
}

func evalAll(e *env, items []evalFn) ([]Value, error) {
	if err := e.st.growList(len(items)); err != nil {
		return nil, err
	}
	vs := make([]Value, len(items))
	for i, item := range items {
		v, err := item(e)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}

func (c *compiler) name(x *nameExpr, f frame) evalFn {
	ref := f.variable(x.name)
	unset := undef("'%s' is undefined", x.name)
	if ref.hops == 0 {
		return func(e *env) (Value, error) {
			if v := e.vars[ref.slot]; v != missing {
				return v, nil
			}
			return unset, nil
		}
	}
	return func(e *env) (Value, error) {
		if v := ref.get(e); v != missing {
			return v, nil
		}
		return unset, nil
	}
}

func (c *compiler) dict(x *dictExpr, f frame) evalFn {
	keys, values := c.exprs(x.keys, f), c.exprs(x.values, f)
	return func(e *env) (Value, error) {
		if err := e.st.growList(3 * len(keys)); err != nil {
			return nil, err
		}
		d := &Dict{}
		for i := range keys {
			k, err := keys[i](e)
			if err != nil {
				return nil, err
			}
			v, err := values[i](e)
			if err != nil {
				return nil, err
			}
			if err = e.st.keyWork(k); err == nil {
				err = d.setValue(k, v)
			}
			if err != nil {
				return nil, atLine(err, x.exprLine())
			}
		}
		return d, nil
	}
}

func (c *compiler) binary(x *binaryExpr, f frame) evalFn {
	left, right := c.expr(x.x, f), c.expr(x.y, f)
	if x.op == "and" || x.op == "or" {
		return func(e *env) (Value, error) {
			v, err := left(e)
			if err != nil || truth(v) == (x.op == "or") {
				return v, err
			}
			return right(e)
		}
	}
	return func(e *env) (Value, error) {
		a, err := left(e)
		if err != nil {
			return nil, err
		}
		b, err := right(e)
		if err != nil {
			return nil, err
		}
		v, err := arithmetic(e.st, x.op, a, b)
		return v, atLine(err, x.exprLine())
	}
}

func (c *compiler) concat(x *concatExpr, f frame) evalFn {
	items := c.exprs(x.items, f)
	join := concatenate
	if f.escape.always() && !c.folding {
		join = func(st *state, vs []Value) (Value, error) { return joinSafely(st, vs, "") }
	}
	return func(e *env) (Value, error) {
		vs, err := evalAll(e, items)
		if err != nil {
			return nil, err
		}
		v, err := join(e.st, vs)
		return v, atLine(err, x.exprLine())
	}
}

// comparison compiles `a < b <= c`, which stops at the first false comparison.
func (c *compiler) comparison(x *compareExpr, f frame) evalFn {
	first, rest := c.expr(x.first, f), c.exprs(x.rest, f)
	return func(e *env) (Value, error) {
		a, err := first(e)
		if err != nil {
			return nil, err
		}
		for i, operand := range rest {
			b, err := operand(e)
			if err != nil {
				return nil, err
			}
			ok, err := relation(e.st, x.ops[i], a, b)
			if err != nil || !ok {
				return false, atLine(err, x.exprLine())
			}
			a = b
		}
		return true, nil
	}
}

func (c *compiler) attr(x *attrExpr, f frame) evalFn {
	of := c.expr(x.x, f)
	return func(e *env) (Value, error) {
		v, err := of(e)
		if err != nil {
			return nil, err
		}
		v, err = getAttr(e.st, v, x.name)
		return v, atLine(err, x.exprLine())
	}
}

func (c *compiler) cond(x *condExpr, f frame) evalFn {
	test, then, other := c.expr(x.test, f), c.expr(x.then, f), c.expr(x.other, f)
	if other == nil {
		none := undef("the inline if-expression on line %d evaluated to false and no else section was defined.", x.exprLine())
		other = func(*env) (Value, error) { return none, nil }
	}
	return func(e *env) (Value, error) {
		v, err := test(e)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			return then(e)
		}
		return other(e)
	}
}

func (c *compiler) item(x *itemExpr, f frame) evalFn {
	of := c.expr(x.x, f)
	folding := c.folding
	if s, ok := x.index.(*sliceExpr); ok {
		bounds := []evalFn{c.expr(s.start, f), c.expr(s.stop, f), c.expr(s.step, f)}
		return func(e *env) (Value, error) {
			v, err := of(e)
			if err != nil {
				return nil, err
			}
			var b [3]Value
			for i, eval := range bounds {
				if eval != nil {
					if b[i], err = eval(e); err != nil {
						return nil, err
					}
				}
			}
			if folding && !sliceable(v) && !isA[*undefined](v) {
				return undef("%s has no element", describe(v)), nil
			}
			v, err = slice(e.st, v, b[0], b[1], b[2])
			return v, atLine(err, x.exprLine())
		}
	}
	index := c.expr(x.index, f)
	return func(e *env) (Value, error) {
		v, err := of(e)
		if err != nil {
			return nil, err
		}
		i, err := index(e)
		if err != nil {
			return nil, err
		}
		v, err = getItem(e.st, v, i)
		return v, atLine(err, x.exprLine())
	}
}

// argsCode is compiled arguments.
type argsCode struct {
	name   string
	pos    []evalFn
	names  []string
	values []evalFn
	star   evalFn
	dict   evalFn
}

func (c *compiler) args(name string, a *callArgs, f frame) *argsCode {
	return &argsCode{name, c.exprs(a.args, f), a.names, c.exprs(a.values, f), c.expr(a.star, f), c.expr(a.dict, f)}
}

// eval computes the arguments, those of *star and **dict after the others.
func (a *argsCode) eval(e *env) (*args, error) {
	out := &args{name: a.name, names: a.names}
	var err error
	if len(a.pos) > 0 {
		if out.pos, err = evalAll(e, a.pos); err != nil {
			return nil, err
		}
	}
	if len(a.values) > 0 {
		if out.values, err = evalAll(e, a.values); err != nil {
			return nil, err
		}
	}
	if a.star != nil {
		v, err := a.star(e)
		if err != nil {
			return nil, err
		}
		items, err := collect(e.st, v)
		if err != nil {
			return nil, err
		}
		out.pos = append(out.pos, items...)
	}
	if a.dict != nil {
		v, err := a.dict(e)
		if err != nil {
			return nil, err
		}
		return out, out.addDict(v)
	}
	return out, nil
}

// call compiles a call; caller, if the call has one, is passed as an argument.
func (c *compiler) call(x *callExpr, f frame, withCaller bool) func(e *env, caller *macro) (Value, error) {
	fn := c.expr(x.fn, f)
	code := c.args("function", &x.args, f)
	return func(e *env, caller *macro) (Value, error) {
		v, err := fn(e)
		if err != nil {
			return nil, err
		}
		a, err := code.eval(e)
		if err != nil {
			return nil, atLine(err, x.exprLine())
		}
		if withCaller {
			if err := a.addNamed("caller", caller); err != nil {
				return nil, atLine(err, x.exprLine())
			}
		}
		v, err = call(e.st, v, a)
		return v, atLine(err, x.exprLine())
	}
}

// filterCall compiles a filter without its input. An unknown filter is an error of the template,
// except directly inside an if: there it fails when it is called, as in Jinja.
func (c *compiler) filterCall(x *filterExpr, f frame) func(e *env, v Value) (Value, error) {
	fn := filterNamed(x.name)
	if fn == nil && !f.soft {
		c.fail(x.exprLine(), "No filter named '%s'.", x.name)
	}
	code := c.args(x.name, &x.args, f)
	return func(e *env, v Value) (Value, error) {
		a, err := code.eval(e)
		if err == nil {
			if fn == nil {
				err = failf(KindRuntime, "No filter named '%s' found.", x.name)
			} else {
				v, err = fn(e.st, v, a)
			}
		}
		return v, atLine(err, x.exprLine())
	}
}

func (c *compiler) test(x *testExpr, f frame) evalFn {
	fn := testNamed(x.name)
	if fn == nil && !f.soft {
		c.fail(x.exprLine(), "No test named '%s'.", x.name)
	}
	of := c.expr(x.x, f)
	code := c.args(x.name, &x.args, f)
	return func(e *env) (Value, error) {
		v, err := of(e)
		if err != nil {
			return nil, err
		}
		a, err := code.eval(e)
		if err != nil {
			return nil, atLine(err, x.exprLine())
		}
		if fn == nil {
			return nil, atLine(failf(KindRuntime, "No test named '%s' found.", x.name), x.exprLine())
		}
		ok, err := fn(e.st, v, a)
		return ok, atLine(err, x.exprLine())
	}
}
