package jinja

import "slices"

// env is one call of a function: its variables and, through up, those of the
// functions around it.
type env struct {
	st   *state
	vars []Value
	up   *env
}

func newEnv(st *state, fn *function, up *env) *env {
	vars := make([]Value, fn.slots)
	for i := range vars {
		vars[i] = missing
	}
	return &env{st, vars, up}
}

// signal is how a statement ended.
type signal int

const (
	sigNone signal = iota
	sigBreak
	sigContinue
)

// evalFn computes an expression, execFn runs a statement.
type (
	evalFn func(e *env) (Value, error)
	execFn func(e *env) (signal, error)
)

// frame is what the compiler knows where it is: the names, whether sets are the
// template's own (toplevel), whether it is right inside an if (soft: there an
// unknown filter only fails when it is used), whether a loop is around.
type frame struct {
	*symbols
	toplevel bool
	soft     bool
	inLoop   bool
}

func (f frame) inner() frame {
	return frame{symbols: newSymbols(f.symbols, f.symbols.frame.fn), inLoop: f.inLoop}
}

// innerFunction is a frame in a function of its own.
func (f frame) innerFunction() frame {
	return frame{symbols: newSymbols(f.symbols, &function{parent: f.symbols.frame.fn})}
}

func (f frame) softened() frame {
	f.soft = true
	return f
}

// compiler turns the tree into closures. The first error sticks.
type compiler struct {
	err    error
	depth  int
	blocks map[string]*blockFunc
}

// blockFunc is a `block` tag's body, a function without outer variables.
type blockFunc struct {
	fn   *function
	init func(e *env)
	body execFn
	self int // slot of `self`, or -1
}

func (c *compiler) fail(line int, format string, args ...any) {
	if c.err == nil {
		c.err = atLine(failf(KindSyntax, format, args...), line)
	}
}

// deeper bounds the recursion of the compiler, and so that of rendering.
func (c *compiler) deeper(line int) bool {
	c.depth++
	if c.depth > maxTreeDeep {
		c.fail(line, "nested more than %d deep", maxTreeDeep)
		return false
	}
	return true
}

// access is where a variable is, seen from a function: how many functions up, and
// its slot there.
type access struct{ hops, slot int }

func (f frame) access(id ident) access {
	hops := 0
	for fn := f.symbols.frame.fn; fn != id.frame.fn && fn.parent != nil; fn = fn.parent {
		hops++
	}
	return access{hops, id.slot()}
}

func (a access) get(e *env) Value {
	for range a.hops {
		e = e.up
	}
	return e.vars[a.slot]
}

func (a access) set(e *env, v Value) {
	for range a.hops {
		e = e.up
	}
	e.vars[a.slot] = v
}

// variable finds a name. A name the symbol pass has not seen (the arguments of a
// set block's filter) is looked up as if it had.
func (f frame) variable(name string) access {
	id, ok := f.find(name)
	if !ok {
		f.symbols.load(name)
		id, _ = f.find(name)
	}
	return f.access(id)
}

// enter is what to run when the frame is entered: it gives the variables their
// first values.
func (f frame) enter() func(e *env) {
	type step struct {
		slot int
		load
		from access
		name string
	}
	var steps []step
	for id, l := range f.symbols.loads {
		if l.kind == loadParam {
			continue
		}
		s := step{slot: id.slot(), load: l, name: id.name}
		if l.kind == loadAlias {
			s.from = f.access(l.from)
		}
		steps = append(steps, s)
	}
	return func(e *env) {
		for i := range steps {
			s := &steps[i]
			switch s.kind {
			case loadResolve:
				e.vars[s.slot] = e.st.resolve(s.name)
			case loadAlias:
				e.vars[s.slot] = s.from.get(e)
			default:
				e.vars[s.slot] = missing
			}
		}
	}
}

// resolve looks a name up outside the functions: what the top level has set (for
// blocks), what the template was given, what every template has.
func (st *state) resolve(name string) Value {
	if v, ok := st.set[name]; ok {
		return v
	}
	if v, ok := st.vars.Get(name); ok {
		return v
	}
	if v, ok := global(name); ok {
		return v
	}
	return missing
}

// compileTemplate compiles the whole tree.
func compileTemplate(body []stmt) (*Template, error) {
	c := &compiler{blocks: map[string]*blockFunc{}}
	fn := &function{}
	f := frame{symbols: newSymbols(nil, fn), toplevel: true}
	self := -1
	if mentions(body, "self") {
		f.param("self")
		self = f.variable("self").slot
	}
	f.statements(body)
	main := &blockFunc{fn: fn, self: self, body: c.statements(body, f)}
	main.init = f.enter()
	if c.err != nil {
		return nil, c.err
	}
	return &Template{main: main, blocks: c.blocks}, nil
}

func (c *compiler) statements(body []stmt, f frame) execFn {
	code := make([]execFn, 0, len(body))
	for _, s := range body {
		if run := c.statement(s, f); run != nil {
			code = append(code, run)
		}
	}
	if len(code) == 1 {
		return code[0]
	}
	return func(e *env) (signal, error) {
		for _, run := range code {
			if sig, err := run(e); err != nil || sig != sigNone {
				return sig, err
			}
		}
		return sigNone, nil
	}
}

func (c *compiler) statement(s stmt, f frame) execFn {
	defer func() { c.depth-- }()
	if !c.deeper(s.stmtLine()) {
		return nil
	}
	switch s := s.(type) {
	case *outputStmt:
		return c.output(s, f)
	case *ifStmt:
		return c.ifBlock(s, f.softened())
	case *forStmt:
		return c.forLoop(s, f)
	case *setStmt:
		return c.set(s, f)
	case *setBlockStmt:
		return c.setBlock(s, f)
	case *macroStmt:
		return c.macro(s, f)
	case *callStmt:
		return c.callBlock(s, f)
	case *generationStmt:
		return c.generation(s, f)
	case *filterStmt:
		return c.filterBlock(s, f)
	case *withStmt:
		return c.with(s, f)
	case *autoescapeStmt:
		return c.autoescape(s, f)
	case *blockStmt:
		return c.block(s, f)
	case *loopControl:
		if !f.inLoop {
			c.fail(s.stmtLine(), "'break' or 'continue' outside a loop")
		}
		sig := sigContinue
		if s.isBreak {
			sig = sigBreak
		}
		return func(*env) (signal, error) { return sig, nil }
	case *templateStmt:
		return func(*env) (signal, error) {
			return sigNone, atLine(failf(KindPython, "%s: there are no other templates", s.tag), s.stmtLine())
		}
	}
	c.fail(s.stmtLine(), "unknown statement")
	return nil
}

func (c *compiler) output(s *outputStmt, f frame) execFn {
	type part struct {
		text string
		eval evalFn
		line int
	}
	var parts []part
	for _, x := range s.items {
		if k, ok := x.(*constExpr); ok {
			if text, ok := k.value.(string); ok {
				parts = append(parts, part{text: text})
				continue
			}
		}
		parts = append(parts, part{eval: c.expr(x, f), line: x.exprLine()})
	}
	return func(e *env) (signal, error) {
		for i := range parts {
			p := &parts[i]
			s := p.text
			if p.eval != nil {
				v, err := p.eval(e)
				if err == nil {
					s, err = str(e.st, v)
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

// checkNamespaces makes sure, before anything is assigned, that what takes
// attributes is a namespace.
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
			err = assign(e, v)
		}
		return sigNone, atLine(err, s.stmtLine())
	}
}

// captured compiles the body of a set or filter block in its own frame: it runs
// the body, catches its output and passes it through the filters. A break or
// continue in the body loses what was caught.
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
		v, err := filter(e, text)
		return v, sigNone, err
	}
}

// capturedFilter compiles a chain of filters whose innermost input is what a
// block wrote; no filter passes the text on.
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
		text, err := str(e.st, v)
		if err == nil {
			err = e.st.write(text)
		}
		return sigNone, atLine(err, s.stmtLine())
	}
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

// autoescape is allowed as long as it turns escaping off, which it is anyway.
func (c *compiler) autoescape(s *autoescapeStmt, f frame) execFn {
	in := f.inner()
	in.expr(s.option)
	in.statements(s.body)
	option := c.expr(s.option, in)
	body := c.statements(s.body, in)
	init := in.enter()
	return func(e *env) (signal, error) {
		init(e)
		on, err := option(e)
		if err == nil && truth(on) {
			err = failf(KindRuntime, "autoescape is not supported")
		}
		if err != nil {
			return sigNone, atLine(err, s.stmtLine())
		}
		return body(e)
	}
}

// block compiles a block tag: a function of its own that is called in place. It
// sees only what the template was given and has set at its top level; a scoped
// one also sees the variables around it.
func (c *compiler) block(s *blockStmt, f frame) execFn {
	if _, twice := c.blocks[s.name]; twice {
		c.fail(s.stmtLine(), "block '%s' defined twice", s.name)
		return nil
	}
	fn := &function{}
	b := &blockFunc{fn: fn, self: -1}
	c.blocks[s.name] = b
	in := frame{symbols: newSymbols(nil, fn)}
	if mentions(s.body, "self") {
		in.param("self")
		b.self = in.variable("self").slot
	}
	in.statements(s.body)
	b.body = c.statements(s.body, in)
	b.init = in.enter()
	locals := map[string]access{}
	if s.scoped {
		for sym := f.symbols; sym != nil; sym = sym.parent {
			for name := range sym.stores {
				if id, ok := f.find(name); ok {
					locals[name] = f.access(id)
				}
			}
		}
	}
	return func(e *env) (signal, error) {
		outer := e.st.set
		if len(locals) > 0 {
			e.st.set = make(map[string]Value, len(outer)+len(locals))
			for name, v := range outer {
				e.st.set[name] = v
			}
			for name, ref := range locals {
				if v := ref.get(e); v != missing {
					e.st.set[name] = v
				}
			}
		}
		err := b.run(e.st)
		e.st.set = outer
		return sigNone, err
	}
}

// run calls the function with variables of its own.
func (b *blockFunc) run(st *state) error {
	if err := st.enter(); err != nil {
		return err
	}
	defer st.leave()
	e := newEnv(st, b.fn, nil)
	b.init(e)
	if b.self >= 0 {
		e.vars[b.self] = st.selfReference()
	}
	_, err := b.body(e)
	return err
}

// selfReference is `self`: every block as a function that returns its text.
func (st *state) selfReference() Value {
	ns := &namespace{attrs: &Dict{}}
	names := make([]string, 0, len(st.blocks))
	for name := range st.blocks {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b := st.blocks[name]
		ns.attrs.Set(name, &callable{name, func(st *state, c *args) (Value, error) {
			if _, err := c.bind(0); err != nil {
				return nil, err
			}
			return st.capture(func() error { return b.run(st) })
		}})
	}
	return ns
}
