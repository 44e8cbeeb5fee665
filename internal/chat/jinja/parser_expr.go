package jinja

import "slices"

// tupleRules say how to read a tuple that may lack parentheses: whether inline ifs belong to its
// items, and whether it may be empty. A name does not end it: after a comma, `in` and `recursive`
// are items, as in Jinja.
type tupleRules struct {
	cond   bool
	parens bool
}

func (p *parser) targetName() (token, error) {
	t, err := p.expect(tokName)
	if err == nil && isConstName(t.text) {
		err = p.fail(t.line, "can't assign to '%s'", t.text)
	}
	return t, err
}

func isConstName(name string) bool {
	return slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name)
}

// target reads the target of an assignment: names, tuples of them and, if namespace, attributes of
// namespaces.
func (p *parser) target(namespace bool) (expr, error) {
	x, err := p.tupleOf(tupleRules{}, func() (expr, error) {
		return p.primary(namespace)
	})
	if err == nil {
		err = p.checkTarget(x)
	}
	return x, err
}

func (p *parser) checkTarget(x expr) error {
	switch x := x.(type) {
	case *nameExpr, *nsRef:
		return nil
	case *tupleExpr:
		for _, item := range x.items {
			if err := p.checkTarget(item); err != nil {
				return err
			}
		}
		return nil
	}
	return p.fail(x.exprLine(), "can't assign to this expression")
}

func (p *parser) tuple(rules tupleRules) (expr, error) {
	return p.tupleOf(rules, func() (expr, error) {
		if rules.cond {
			return p.expression()
		}
		return p.or()
	})
}

func (p *parser) tupleOf(rules tupleRules, item func() (expr, error)) (expr, error) {
	line := pos(p.cur().line)
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		if p.at(tokVarEnd) || p.at(tokBlkEnd) || p.at(")") {
			break
		}
		x, err := item()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.at(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0], nil
		}
		if !rules.parens {
			return nil, p.fail(p.cur().line, "Expected an expression, got %s", p.cur())
		}
	}
	return &tupleExpr{line, items}, nil
}

// expression reads an expression with inline ifs.
func (p *parser) expression() (expr, error) {
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	line := pos(p.cur().line)
	x, err := p.or()
	for n := 0; err == nil && p.skipName("if"); n++ {
		if err := p.chain(n); err != nil {
			return nil, err
		}
		c := &condExpr{pos: line, then: x}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.other, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x, line = c, pos(p.cur().line)
	}
	return x, err
}

func (p *parser) or() (expr, error) {
	return p.leftAssoc(p.and, func() string {
		if p.atName("or") {
			return "or"
		}
		return ""
	})
}

func (p *parser) and() (expr, error) {
	return p.leftAssoc(p.not, func() string {
		if p.atName("and") {
			return "and"
		}
		return ""
	})
}

// operatorIn reports the current token if it is one of ops.
func (p *parser) operatorIn(ops ...tokenKind) func() string {
	return func() string {
		if k := p.cur().kind; slices.Contains(ops, k) {
			return string(k)
		}
		return ""
	}
}

// chain bounds the number of operators, filters or subscripts in a row, because the tree is that
// deep.
func (p *parser) chain(n int) error {
	if n > maxTreeDeep {
		return p.fail(p.cur().line, "more than %d operators in a row", maxTreeDeep)
	}
	return nil
}

// leftAssoc reads `operand (op operand)*`.
func (p *parser) leftAssoc(operand func() (expr, error), op func() string) (expr, error) {
	x, err := operand()
	for n := 0; err == nil; n++ {
		o := op()
		if o == "" {
			return x, nil
		}
		if err := p.chain(n); err != nil {
			return nil, err
		}
		line := pos(p.next().line)
		var y expr
		if y, err = operand(); err == nil {
			x = &binaryExpr{line, o, x, y}
		}
	}
	return nil, err
}

func (p *parser) not() (expr, error) {
	if !p.atName("not") {
		return p.comparison()
	}
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	line := pos(p.next().line)
	x, err := p.not()
	return &unaryExpr{line, "not", x}, err
}

func (p *parser) comparison() (expr, error) {
	line := pos(p.cur().line)
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{pos: line, first: first}
	for {
		op := p.operatorIn("==", "!=", "<", "<=", ">", ">=")()
		switch {
		case op != "":
			p.next()
		case p.skipName("in"):
			op = "in"
		case p.atName("not") && p.look().kind == tokName && p.look().text == "in":
			p.next()
			p.next()
			op = "not in"
		default:
			if len(c.ops) == 0 {
				return first, nil
			}
			return c, nil
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, x)
	}
}

func (p *parser) sum() (expr, error) { return p.leftAssoc(p.concat, p.operatorIn("+", "-")) }

func (p *parser) concat() (expr, error) {
	line := pos(p.cur().line)
	x, err := p.product()
	if err != nil || !p.at("~") {
		return x, err
	}
	c := &concatExpr{line, []expr{x}}
	for p.skip("~") {
		if x, err = p.product(); err != nil {
			return nil, err
		}
		c.items = append(c.items, x)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	return p.leftAssoc(p.power, p.operatorIn("*", "/", "//", "%"))
}

func (p *parser) power() (expr, error) {
	return p.leftAssoc(func() (expr, error) { return p.unary(true) }, p.operatorIn("**"))
}

// unary reads signs, a primary and what follows it. Filters bind less tightly
// than a sign, so the operand of a sign takes none.
func (p *parser) unary(withFilter bool) (expr, error) {
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	var x expr
	var err error
	if p.at("-") || p.at("+") {
		t := p.next()
		var operand expr
		operand, err = p.unary(false)
		x = &unaryExpr{pos(t.line), string(t.kind), operand}
	} else {
		x, err = p.primary(false)
	}
	if err == nil {
		x, err = p.postfix(x)
	}
	if err == nil && withFilter {
		x, err = p.filtersAndTests(x)
	}
	return x, err
}

func (p *parser) primary(withNamespace bool) (expr, error) {
	t := p.next()
	line := pos(t.line)
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{line, true}, nil
		case "false", "False":
			return &constExpr{line, false}, nil
		case "none", "None":
			return &constExpr{line, nil}, nil
		}
		if withNamespace && p.skip(".") {
			attr, err := p.expect(tokName)
			return &nsRef{line, t.text, attr.text}, err
		}
		return &nameExpr{line, t.text}, nil
	case tokString:
		s := t.text
		for p.at(tokString) {
			s += p.next().text
		}
		return &constExpr{line, s}, nil
	case tokInt, tokFloat:
		return &constExpr{line, t.value}, nil
	case "(":
		x, err := p.tuple(tupleRules{cond: true, parens: true})
		if err == nil {
			_, err = p.expect(")")
		}
		return x, err
	case "[":
		items, err := p.list("]")
		return &listExpr{line, items}, err
	case "{":
		return p.dict(line)
	}
	return nil, p.fail(t.line, "unexpected %s", t)
}

// list reads expressions up to the closing bracket; a last comma is fine.
func (p *parser) list(end tokenKind) ([]expr, error) {
	var items []expr
	for !p.at(end) {
		if len(items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
			if p.at(end) {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	p.next()
	return items, nil
}

func (p *parser) dict(line pos) (expr, error) {
	d := &dictExpr{pos: line}
	for !p.at("}") {
		if len(d.keys) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
			if p.at("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if _, err := p.expect(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, k), append(d.values, v)
	}
	p.next()
	return d, nil
}
