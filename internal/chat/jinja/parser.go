package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// parser reads statements; parser_expr.go reads expressions. It follows Jinja's
// own grammar, precedence and quirks. depth bounds recursion.
type parser struct {
	tokens []token
	i      int
	depth  int
	ends   [][]string // the tags that may end the open blocks, outermost first
}

func parse(src string) ([]stmt, error) {
	if len(src) > maxSource {
		return nil, failf(KindSyntax, "the template has more than %d bytes", maxSource)
	}
	tokens, err := tokenize(src)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	return p.statements(nil)
}

func (p *parser) cur() token { return p.tokens[p.i] }

func (p *parser) look() token { return p.tokens[min(p.i+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.i]
	if p.i+1 < len(p.tokens) {
		p.i++
	}
	return t
}

func (p *parser) at(kind tokenKind) bool { return p.tokens[p.i].kind == kind }

func (p *parser) atName(names ...string) bool {
	t := p.tokens[p.i]
	return t.kind == tokName && slices.Contains(names, t.text)
}

func (p *parser) skip(kind tokenKind) bool {
	ok := p.at(kind)
	if ok {
		p.next()
	}
	return ok
}

func (p *parser) skipName(name string) bool {
	ok := p.atName(name)
	if ok {
		p.next()
	}
	return ok
}

func (p *parser) fail(line int, format string, args ...any) error {
	return atLine(failf(KindSyntax, format, args...), line)
}

func (p *parser) expect(kind tokenKind) (token, error) {
	if p.at(kind) {
		return p.next(), nil
	}
	if p.at(tokEOF) {
		return token{}, p.fail(p.cur().line, "unexpected end of template, expected '%s'.", kind)
	}
	return token{}, p.fail(p.cur().line, "expected token '%s', got %s", kind, p.cur())
}

// nest bounds recursion; undo it with unnest.
func (p *parser) nest() error {
	p.depth++
	if p.depth > maxTreeDeep {
		return p.fail(p.cur().line, "nested more than %d deep", maxTreeDeep)
	}
	return nil
}

func (p *parser) unnest() { p.depth-- }

// statements reads text, prints and tags up to a tag named in ends (left as the
// current token) or, with no ends, to the end of the template.
func (p *parser) statements(ends []string) ([]stmt, error) {
	if err := p.nest(); err != nil {
		return nil, err
	}
	defer p.unnest()
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var body []stmt
	var out *outputStmt
	print := func(line int, x expr) {
		if out == nil {
			out = &outputStmt{pos: pos(line)}
			body = append(body, out)
		}
		out.items = append(out.items, x)
	}
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if ends != nil {
				return nil, p.unknownTag("", t.line)
			}
			return body, nil
		case tokData:
			print(t.line, &dataExpr{pos(t.line), t.text})
		case tokVarBegin:
			x, err := p.tuple(tupleRules{cond: true})
			if err == nil {
				_, err = p.expect(tokVarEnd)
			}
			if err != nil {
				return nil, err
			}
			print(t.line, x)
		default: // a block begins
			out = nil
			if ends != nil && p.atName(ends...) {
				return body, nil
			}
			s, err := p.statement()
			if err == nil {
				_, err = p.expect(tokBlkEnd)
			}
			if err != nil {
				return nil, err
			}
			body = append(body, s)
		}
	}
}

// unknownTag returns an error that lists the expected tags. An empty name is the end of the template.
func (p *parser) unknownTag(name string, line int) error {
	msg := "Unexpected end of template."
	if name != "" {
		msg = fmt.Sprintf("Encountered unknown tag '%s'.", name)
	}
	if n := len(p.ends); n > 0 {
		msg += " Jinja was looking for the following tags: '" + strings.Join(p.ends[n-1], "' or '") + "'."
	}
	return p.fail(line, "%s", msg)
}

// body reads `%}`, statements and the tag that ends them, which it returns.
func (p *parser) body(ends ...string) ([]stmt, string, error) {
	p.skip(":")
	if _, err := p.expect(tokBlkEnd); err != nil {
		return nil, "", err
	}
	body, err := p.statements(ends)
	if err != nil {
		return nil, "", err
	}
	return body, p.next().text, nil
}

func (p *parser) statement() (stmt, error) {
	t := p.cur()
	if t.kind != tokName {
		return nil, p.fail(t.line, "tag name expected")
	}
	p.next()
	line := pos(t.line)
	switch t.text {
	case "for":
		return p.forLoop(line)
	case "if":
		return p.ifBlock(line)
	case "set":
		return p.set(line)
	case "macro":
		return p.macro(line)
	case "call":
		return p.callBlock(line)
	case "filter":
		f, err := p.filter(nil, true)
		if err != nil {
			return nil, err
		}
		body, _, err := p.body("endfilter")
		return &filterStmt{line, f.(*filterExpr), body}, err
	case "with":
		return p.with(line)
	case "generation":
		body, _, err := p.body("endgeneration")
		return &generationStmt{line, macroDef{body: body}}, err
	case "autoescape":
		option, err := p.expression()
		if err != nil {
			return nil, err
		}
		body, _, err := p.body("endautoescape")
		return &autoescapeStmt{line, option, body}, err
	case "print":
		return p.print(line)
	case "block":
		return p.block(line)
	case "break", "continue":
		return &loopControl{line, t.text == "break"}, nil
	case "include", "import", "from", "extends":
		for !p.at(tokBlkEnd) && !p.at(tokEOF) {
			p.next()
		}
		return &templateStmt{line, t.text}, nil
	}
	return nil, p.unknownTag(t.text, t.line)
}

func (p *parser) forLoop(line pos) (stmt, error) {
	s := &forStmt{pos: line}
	var err error
	if s.target, err = p.target(false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.fail(p.cur().line, "expected token 'in', got %s", p.cur())
	}
	if s.iter, err = p.tuple(tupleRules{}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	body, end, err := p.body("endfor", "else")
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		s.other, _, err = p.body("endfor")
	}
	return s, err
}

func (p *parser) ifBlock(line pos) (stmt, error) {
	result := &ifStmt{pos: line}
	node := result
	for {
		var err error
		var end string
		if node.test, err = p.tuple(tupleRules{}); err != nil {
			return nil, err
		}
		if node.body, end, err = p.body("elif", "else", "endif"); err != nil {
			return nil, err
		}
		switch end {
		case "elif":
			node = &ifStmt{pos: pos(p.cur().line)}
			result.elifs = append(result.elifs, node)
			continue
		case "else":
			result.other, _, err = p.body("endif")
		}
		return result, err
	}
}

func (p *parser) set(line pos) (stmt, error) {
	target, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skip("=") {
		value, err := p.tuple(tupleRules{cond: true})
		return &setStmt{line, target, value}, err
	}
	s := &setBlockStmt{pos: line, target: target}
	f, err := p.filter(nil, false)
	if err != nil {
		return nil, err
	}
	s.filter, _ = f.(*filterExpr)
	s.body, _, err = p.body("endset")
	return s, err
}

// signature reads `(a, b=default)`.
func (p *parser) signature(def *macroDef) error {
	if _, err := p.expect("("); err != nil {
		return err
	}
	for !p.at(")") {
		if len(def.params) > 0 {
			if _, err := p.expect(","); err != nil {
				return err
			}
		}
		name, err := p.targetName()
		if err != nil {
			return err
		}
		if slices.Contains(def.params, name.text) {
			return p.fail(name.line, "duplicate argument '%s'", name.text)
		}
		if p.skip("=") {
			x, err := p.expression()
			if err != nil {
				return err
			}
			def.defaults = append(def.defaults, x)
		} else if len(def.defaults) > 0 {
			return p.fail(name.line, "non-default argument follows default argument")
		}
		def.params = append(def.params, name.text)
	}
	p.next()
	return nil
}

func (p *parser) macro(line pos) (stmt, error) {
	name, err := p.targetName()
	if err != nil {
		return nil, err
	}
	s := &macroStmt{pos: line, macroDef: macroDef{name: name.text}}
	if err := p.signature(&s.macroDef); err != nil {
		return nil, err
	}
	s.body, _, err = p.body("endmacro")
	return s, err
}

func (p *parser) callBlock(line pos) (stmt, error) {
	s := &callStmt{pos: line}
	if p.at("(") {
		if err := p.signature(&s.macroDef); err != nil {
			return nil, err
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.fail(int(line), "expected call")
	}
	s.call = call
	s.body, _, err = p.body("endcall")
	return s, err
}

func (p *parser) with(line pos) (stmt, error) {
	s := &withStmt{pos: line}
	for !p.at(tokBlkEnd) {
		if len(s.targets) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		target, err := p.target(false)
		if err != nil {
			return nil, err
		}
		if _, err := p.expect("="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, target), append(s.values, value)
	}
	var err error
	s.body, _, err = p.body("endwith")
	return s, err
}

func (p *parser) print(line pos) (stmt, error) {
	s := &outputStmt{pos: line}
	for !p.at(tokBlkEnd) {
		if len(s.items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.items = append(s.items, x)
	}
	return s, nil
}

func (p *parser) block(line pos) (stmt, error) {
	name, err := p.expect(tokName)
	if err != nil {
		return nil, err
	}
	s := &blockStmt{pos: line, name: name.text}
	s.scoped = p.skipName("scoped")
	required := p.skipName("required")
	if s.body, _, err = p.body("endblock"); err != nil {
		return nil, err
	}
	if required && !onlySpace(s.body) {
		return nil, p.fail(int(line), "Required blocks can only contain comments or whitespace")
	}
	p.skipName(s.name)
	return s, nil
}

func onlySpace(body []stmt) bool {
	for _, s := range body {
		out, ok := s.(*outputStmt)
		if !ok {
			return false
		}
		for _, x := range out.items {
			data, ok := x.(*dataExpr)
			if !ok || strings.TrimFunc(data.text, IsSpace) != "" {
				return false
			}
		}
	}
	return true
}
