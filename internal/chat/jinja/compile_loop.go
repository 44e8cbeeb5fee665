package jinja

// forLoop compiles a loop. Each iteration enters the loop's frame anew, so variables that are set
// in one iteration are not visible in the next. A recursive loop is a function that the body can
// call with other items.
func (c *compiler) forLoop(s *forStmt, f frame) execFn {
	walkStmt(s, func(name string, use nameUse) {
		if use == useStore && name == "loop" {
			c.fail(s.stmtLine(), "Can't assign to special loop variable in for-loop target")
		}
	})
	iter := c.expr(s.iter, f)
	in := f.inner()
	if s.recursive {
		in = f.innerFunction()
	}
	in.inLoop = true
	l := &loopCode{line: s.stmtLine(), filter: c.loopFilter(s, f), loopSlot: -1, escape: f.escape}
	if s.recursive || mentions(s.body, "loop") {
		in.param("loop")
		l.loopSlot = in.variable("loop").slot
	}
	in.target(s.target, true)
	in.statements(s.body)
	l.assign = c.assign(s.target, in)
	l.body = c.statements(s.body, in)
	l.init = in.enter()
	if len(s.other) > 0 {
		other := f.inner()
		if s.recursive {
			other = frame{symbols: newSymbols(f.symbols, in.symbols.frame.fn), escape: f.escape}
		}
		other.statements(s.other)
		l.other = c.statements(s.other, other)
		l.initOther = other.enter()
	}
	if s.recursive {
		return l.recursive(iter, in.symbols.frame.fn)
	}
	return func(e *env) (signal, error) {
		items, err := iter(e)
		if err != nil {
			return sigNone, atLine(err, l.line)
		}
		return l.run(e, e, items, nil, 0)
	}
}

// recursive returns the loop as a function that its body can call.
func (l *loopCode) recursive(iter evalFn, fn *function) execFn {
	return func(e *env) (signal, error) {
		items, err := iter(e)
		if err != nil {
			return sigNone, atLine(err, l.line)
		}
		var call func(items Value, depth int) error
		call = func(items Value, depth int) error {
			if err := e.st.enter(); err != nil {
				return atLine(err, l.line)
			}
			defer e.st.leave()
			_, err := l.run(newEnv(e.st, fn, e), e, items, call, depth)
			return err
		}
		return sigNone, call(items, 0)
	}
}

// loopCode is a compiled loop.
type loopCode struct {
	line      int
	filter    func(e *env, items iterator) iterator // nil without `if`
	loopSlot  int                                   // of `loop`, -1 if the body does not use it
	escape    escaping
	init      func(e *env)
	assign    func(e *env, v Value) error
	body      execFn
	other     execFn // nil without `else`
	initOther func(e *env)
}

// run walks over items. e holds the loop's variables, outer those around it; they
// are the same unless the loop is recursive.
func (l *loopCode) run(e, outer *env, v Value, recurse func(Value, int) error, depth int) (signal, error) {
	items, err := iterate(e.st, v)
	if err != nil {
		return sigNone, atLine(err, l.line)
	}
	if l.filter != nil {
		items = l.filter(outer, items)
	}
	loop := &loopContext{items: items, index0: -1, length: items.n, depth0: depth, recurse: recurse, escape: l.escape}
	loop.current, loop.after = missing, missing
	for {
		item, ok, err := loop.next()
		if err != nil {
			return sigNone, atLine(err, l.line)
		}
		if !ok {
			break
		}
		if err := e.st.work(1); err != nil {
			return sigNone, atLine(err, l.line)
		}
		l.init(e)
		if l.loopSlot >= 0 {
			e.vars[l.loopSlot] = loop
		}
		if err := l.assign(e, item); err != nil {
			return sigNone, atLine(err, l.line)
		}
		sig, err := l.body(e)
		if err != nil {
			return sigNone, err
		}
		if sig == sigBreak {
			break
		}
		if sig == sigNone { // as in Jinja, an iteration that continues does not count
			loop.finished = true
		}
	}
	if l.other != nil && !loop.finished {
		l.initOther(e)
		return l.other(e)
	}
	return sigNone, nil
}

// loopFilter compiles the `if` of a loop: a generator that tests an item only when the loop reaches
// it.
func (c *compiler) loopFilter(s *forStmt, f frame) func(e *env, items iterator) iterator {
	if s.test == nil {
		return nil
	}
	in := f.innerFunction()
	in.target(s.target, true)
	in.expr(s.test)
	assign := c.assign(s.target, in)
	test := c.expr(s.test, in)
	target := c.expr(s.target, in)
	init := in.enter()
	fn := in.symbols.frame.fn
	return func(e *env, items iterator) iterator {
		inner := newEnv(e.st, fn, e)
		init(inner)
		return iterator{n: -1, next: func() (Value, bool, error) {
			for {
				item, ok, err := items.next()
				if err != nil || !ok {
					return nil, false, err
				}
				if err := assign(inner, item); err != nil {
					return nil, false, err
				}
				keep, err := test(inner)
				if err != nil {
					return nil, false, err
				}
				if truth(keep) {
					item, err = target(inner) // of `a, b` a new tuple
					return item, err == nil, err
				}
			}
		}}
	}
}

// loopContext is the value of `loop`.
type loopContext struct {
	items    iterator
	index0   int
	length   int // -1 while unknown
	depth0   int
	before   Value
	current  Value
	after    Value // looked at ahead of its turn, or missing
	changed  Value // a tuple, what loop.changed last saw
	recurse  func(items Value, depth int) error
	escape   escaping
	finished bool // an iteration has completed
}

func (l *loopContext) next() (Value, bool, error) {
	item := l.after
	if item != missing {
		l.after = missing
	} else {
		var ok bool
		var err error
		if item, ok, err = l.items.next(); err != nil || !ok {
			return nil, false, err
		}
	}
	l.index0++
	l.before, l.current = l.current, item
	return item, true, nil
}

// peek returns the next item, or missing after the last.
func (l *loopContext) peek() (Value, error) {
	if l.after == missing {
		item, ok, err := l.items.next()
		if err != nil {
			return nil, err
		}
		if ok {
			l.after = item
		}
	}
	return l.after, nil
}

// size returns the number of items; a generator is read to its end to count them.
func (l *loopContext) size(st *state) (int, error) {
	if l.length < 0 {
		rest, err := drain(st, l.items)
		if err != nil {
			return 0, err
		}
		l.items = itemsIterator(rest)
		l.length = len(rest) + l.index0 + 1
		if l.after != missing {
			l.length++
		}
	}
	return l.length, nil
}

// attr returns an attribute of `loop`, or false if there is none of that name.
func (l *loopContext) attr(st *state, name string) (Value, bool, error) {
	switch name {
	case "index0":
		return int64(l.index0), true, nil
	case "index":
		return int64(l.index0 + 1), true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "depth0":
		return int64(l.depth0), true, nil
	case "depth":
		return int64(l.depth0 + 1), true, nil
	case "length", "revindex", "revindex0":
		n, err := l.size(st)
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return int64(n), true, err
	case "last":
		next, err := l.peek()
		return next == missing, true, err
	case "nextitem":
		next, err := l.peek()
		if next == missing {
			next = undef("there is no next item")
		}
		return next, true, err
	case "previtem":
		if l.index0 == 0 {
			return undef("there is no previous item"), true, nil
		}
		return l.before, true, nil
	case "cycle":
		return &callable{"cycle", l.cycle}, true, nil
	case "changed":
		return &callable{"changed", l.hasChanged}, true, nil
	}
	return nil, false, nil
}

func (l *loopContext) cycle(_ *state, c *args) (Value, error) {
	if len(c.pos) == 0 || len(c.names) > 0 {
		return nil, typeErrorf("no items for cycling given")
	}
	return c.pos[l.index0%len(c.pos)], nil
}

func (l *loopContext) hasChanged(st *state, c *args) (Value, error) {
	now := &Tuple{Items: c.pos}
	if l.changed != nil {
		same, err := equal(st, l.changed, now)
		if err != nil || same {
			return false, err
		}
	}
	l.changed = now
	return true, nil
}

// call returns `loop(items)` in a recursive loop.
func (l *loopContext) call(st *state, c *args) (Value, error) {
	a, err := c.bind(1, "iterable")
	if err != nil {
		return nil, err
	}
	if l.recurse == nil {
		return nil, typeErrorf("The loop must have the 'recursive' marker to be called recursively.")
	}
	text, err := st.capture(func() error { return l.recurse(a[0], l.depth0+1) })
	return l.escape.text(st, text), err
}
