package jinja

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

// frame is the compiler's position in the template: the names, whether sets are the template's own
// (toplevel), whether the position is directly inside an if (soft: there an unknown filter fails
// only when it is used), whether it is in a loop, and how autoescape tags around it escape.
type frame struct {
	*symbols
	toplevel bool
	soft     bool
	inLoop   bool
	escape   escaping
}

func (f frame) inner() frame {
	return frame{symbols: newSymbols(f.symbols, f.symbols.frame.fn), inLoop: f.inLoop, escape: f.escape}
}

// innerFunction returns a frame in a function of its own.
func (f frame) innerFunction() frame {
	return frame{symbols: newSymbols(f.symbols, &function{parent: f.symbols.frame.fn}), escape: f.escape}
}

func (f frame) softened() frame {
	f.soft = true
	return f
}

// compiler turns the tree into closures. The first error sticks.
type compiler struct {
	err     error
	depth   int
	folding bool // compiles a constant: slices and texts as Jinja's optimizer computes them
	blocks  map[string]*blockFunc
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

// access is the place of a variable relative to a function: the number of functions up, and its
// slot there.
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

// enter returns the function to run when the frame is entered. It gives the variables their
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

// resolve looks up a name outside of functions: first what the top level has set (for blocks), then
// the template's variables, then the globals.
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
