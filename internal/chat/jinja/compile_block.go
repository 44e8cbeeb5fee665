package jinja

// blockFunc is a `block` tag's body, a function without outer variables.
type blockFunc struct {
	fn   *function
	init func(e *env)
	body execFn
	self int // slot of `self`, or -1
}

// block compiles a block tag as a function that is called in place. The function sees only the
// template's variables and what its top level has set. A scoped block also sees the variables
// around it.
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

// run calls the function with its own variables.
func (b *blockFunc) run(st *state) error {
	if err := st.enter(); err != nil {
		return err
	}
	defer st.leave()
	e := newEnv(st, b.fn, nil)
	b.init(e)
	if b.self >= 0 {
		e.vars[b.self] = &blockReference{}
	}
	_, err := b.body(e)
	return err
}

// blockReference is the value of `self`: its members are the template's blocks.
type blockReference struct{}

// block returns a block as a function that returns its text, or false if there is none of that name.
func (st *state) block(name string) (Value, bool, error) {
	b, ok := st.blocks[name]
	if !ok {
		return nil, false, nil
	}
	return &callable{name, func(st *state, c *args) (Value, error) {
		if _, err := c.bind(0); err != nil {
			return nil, err
		}
		text, err := st.capture(func() error { return b.run(st) })
		return st.rendered(text), err
	}}, true, nil
}
