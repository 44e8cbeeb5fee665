package jinja

import (
	"slices"
)

func (p *parser) postfix(x expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if err := p.chain(n); err != nil {
			return nil, err
		}
		switch {
		case p.at(".") || p.at("["):
			x, err = p.subscript(x)
		case p.at("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
	}
	return nil, err
}

func (p *parser) filtersAndTests(x expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if err := p.chain(n); err != nil {
			return nil, err
		}
		switch {
		case p.at("|"):
			x, err = p.filter(x, false)
		case p.atName("is"):
			x, err = p.test(x)
		case p.at("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
	}
	return nil, err
}

func (p *parser) subscript(x expr) (expr, error) {
	t := p.next()
	line := pos(t.line)
	if t.kind == "." {
		attr := p.next()
		switch attr.kind {
		case tokName:
			return &attrExpr{line, x, attr.text}, nil
		case tokInt:
			return &itemExpr{line, x, &constExpr{line, attr.value}}, nil
		}
		return nil, p.fail(attr.line, "expected name or number")
	}
	var args []expr
	for !p.at("]") {
		if len(args) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		arg, err := p.subscribed()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	p.next()
	if len(args) == 1 {
		return &itemExpr{line, x, args[0]}, nil
	}
	return &itemExpr{line, x, &tupleExpr{line, args}}, nil
}

// subscribed reads one index or slice.
func (p *parser) subscribed() (expr, error) {
	s := &sliceExpr{pos: pos(p.cur().line)}
	var err error
	if !p.at(":") {
		if s.start, err = p.expression(); err != nil {
			return nil, err
		}
		if !p.at(":") {
			return s.start, nil
		}
	}
	for _, part := range []*expr{&s.stop, &s.step} {
		if !p.skip(":") {
			break
		}
		if !p.at(":") && !p.at("]") && !p.at(",") {
			if *part, err = p.expression(); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (p *parser) call(fn expr) (expr, error) {
	line := pos(p.cur().line)
	args, err := p.callArgs()
	return &callExpr{line, fn, args}, err
}

func (p *parser) callArgs() (callArgs, error) {
	var c callArgs
	open := p.next()
	bad := func() (callArgs, error) {
		return c, p.fail(open.line, "invalid syntax for function call expression")
	}
	for comma := false; !p.at(")"); comma = true {
		if comma {
			if _, err := p.expect(","); err != nil {
				return c, err
			}
			if p.at(")") {
				break
			}
		}
		var err error
		switch {
		case p.skip("*"):
			if c.star != nil || c.dict != nil {
				return bad()
			}
			c.star, err = p.expression()
		case p.skip("**"):
			if c.dict != nil {
				return bad()
			}
			c.dict, err = p.expression()
		case p.at(tokName) && p.look().kind == "=":
			if c.dict != nil || slices.Contains(c.names, p.cur().text) {
				return bad()
			}
			c.names = append(c.names, p.next().text)
			p.next()
			var v expr
			v, err = p.expression()
			c.values = append(c.values, v)
		default:
			if c.star != nil || c.dict != nil || len(c.names) > 0 {
				return bad()
			}
			var x expr
			x, err = p.expression()
			c.args = append(c.args, x)
		}
		if err != nil {
			return c, err
		}
	}
	p.next()
	return c, nil
}

// filter reads `| name(args)`, several times; bare means that the first bar is
// not there, as in the filter tag. Without any filter it returns x.
func (p *parser) filter(x expr, bare bool) (expr, error) {
	for n := 0; bare || p.at("|"); n++ {
		if err := p.chain(n); err != nil {
			return nil, err
		}
		if !bare {
			p.next()
		}
		bare = false
		name, err := p.dottedName()
		if err != nil {
			return nil, err
		}
		f := &filterExpr{pos: pos(name.line), x: x, name: name.text}
		if p.at("(") {
			if f.args, err = p.callArgs(); err != nil {
				return nil, err
			}
		}
		x = f
	}
	return x, nil
}

func (p *parser) dottedName() (token, error) {
	name, err := p.expect(tokName)
	for err == nil && p.skip(".") {
		var part token
		part, err = p.expect(tokName)
		name.text += "." + part.text
	}
	return name, err
}

// test reads `is [not] name`, with arguments in parentheses or one without.
func (p *parser) test(x expr) (expr, error) {
	line := pos(p.next().line)
	negated := p.skipName("not")
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	t := &testExpr{pos: line, x: x, name: name.text}
	switch k := p.cur().kind; {
	case k == "(":
		t.args, err = p.callArgs()
	case p.atName("is"):
		err = p.fail(p.cur().line, "You cannot chain multiple tests with is")
	case slices.Contains([]tokenKind{tokName, tokString, tokInt, tokFloat, "[", "{"}, k) && !p.atName("else", "or", "and"):
		var arg expr
		if arg, err = p.primary(false); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args.args = []expr{arg}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &unaryExpr{line, "not", t}, nil
	}
	return t, nil
}
