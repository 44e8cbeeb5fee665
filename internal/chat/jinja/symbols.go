package jinja

import (
	"maps"
	"slices"
)

// Scoping follows Jinja's compiler: a template is one function; a macro, a call
// block, a recursive loop and a loop's filter are functions inside it. A function
// has slots for its variables. Loops, with, set and filter blocks open frames of
// their own inside their function: what they set is theirs, what they only read
// is the outer frame's. An if has no frame. A frame's symbols are found before any
// of it is compiled, so a name's meaning does not depend on what ran before.

// function is where slots are counted.
type function struct {
	parent *function
	slots  int
}

// ident is one variable: a name in a frame.
type ident struct {
	frame *frameSlots
	name  string
}

// frameSlots are the variables of one frame.
type frameSlots struct {
	fn    *function
	slots map[string]int
}

func (id ident) slot() int {
	n, ok := id.frame.slots[id.name]
	if !ok {
		n = id.frame.fn.slots
		id.frame.fn.slots++
		id.frame.slots[id.name] = n
	}
	return n
}

// loadKind is how a variable gets its value when its frame is entered.
type loadKind int

const (
	loadParam   loadKind = iota // whoever enters the frame sets it
	loadResolve                 // looked up in what the template was given
	loadAlias                   // a copy of an outer variable
	loadUnbound                 // nothing yet
)

type load struct {
	kind loadKind
	from ident // of an alias
}

// symbols has the names of a frame and how each is resolved. An arm of an if has symbols of
// its own on top of those of the frame (base), which take them over at its end.
type symbols struct {
	parent *symbols // of the frame around
	base   *symbols
	frame  *frameSlots
	refs   map[string]ident
	loads  map[ident]load
	stores map[string]bool
}

func newSymbols(parent *symbols, fn *function) *symbols {
	return &symbols{
		parent: parent,
		frame:  &frameSlots{fn, map[string]int{}},
		refs:   map[string]ident{},
		loads:  map[ident]load{},
		stores: map[string]bool{},
	}
}

// branch is for one arm of an if.
func (s *symbols) branch() *symbols {
	arm := newSymbols(s.parent, nil)
	arm.base, arm.frame = s, s.frame
	return arm
}

// ref returns the variable of this frame that a name means, if it has one.
func (s *symbols) ref(name string) (ident, bool) {
	for ; s != nil; s = s.base {
		if id, ok := s.refs[name]; ok {
			return id, true
		}
	}
	return ident{}, false
}

// stored reports whether this frame sets the name.
func (s *symbols) stored(name string) bool {
	for ; s != nil; s = s.base {
		if s.stores[name] {
			return true
		}
	}
	return false
}

func (s *symbols) define(name string, l load) {
	id := ident{s.frame, name}
	s.refs[name] = id
	s.loads[id] = l
}

// find returns the variable a name means here, in this or an outer frame.
func (s *symbols) find(name string) (ident, bool) {
	for ; s != nil; s = s.parent {
		if id, ok := s.ref(name); ok {
			return id, true
		}
	}
	return ident{}, false
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.ref(name); ok {
		return
	}
	if outer, ok := s.parent.find(name); ok {
		s.define(name, load{loadAlias, outer})
		return
	}
	s.define(name, load{kind: loadUnbound})
}

func (s *symbols) param(name string) {
	s.stores[name] = true
	s.define(name, load{kind: loadParam})
}

func (s *symbols) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, load{kind: loadResolve})
	}
}

// join takes over the names that the branches of an if define. A name that only some arms set
// keeps its outer meaning in the others.
func (s *symbols) join(arms ...*symbols) {
	set := map[string]bool{}
	for _, arm := range arms {
		for name := range arm.stores {
			if !s.stored(name) {
				set[name] = true
			}
		}
	}
	for _, arm := range arms {
		maps.Copy(s.refs, arm.refs)
		maps.Copy(s.loads, arm.loads)
		maps.Copy(s.stores, arm.stores)
	}
	for name := range set {
		id, _ := s.ref(name)
		if outer, ok := s.parent.find(name); ok {
			s.loads[id] = load{loadAlias, outer}
		} else {
			s.loads[id] = load{kind: loadResolve}
		}
	}
}

func (s *symbols) statements(body []stmt) {
	for _, x := range body {
		s.statement(x)
	}
}

// statement finds the names x uses in this frame; what belongs to a frame of x's
// own is found when that is compiled.
func (s *symbols) statement(x stmt) {
	switch x := x.(type) {
	case *outputStmt:
		s.exprs(x.items...)
	case *ifStmt:
		s.expr(x.test)
		body, elifs, other := s.branch(), s.branch(), s.branch()
		body.statements(x.body)
		for _, e := range x.elifs {
			elifs.statement(e)
		}
		other.statements(x.other)
		s.join(body, elifs, other)
	case *forStmt:
		s.expr(x.iter)
	case *setStmt:
		s.expr(x.value)
		s.target(x.target, false)
	case *setBlockStmt:
		s.target(x.target, false)
	case *macroStmt:
		s.store(x.name)
	case *callStmt:
		s.expr(x.call)
	case *filterStmt:
		s.expr(x.filter)
	case *withStmt:
		s.exprs(x.values...)
	}
}

// target finds the names an assignment sets, as parameters of the frame or not.
func (s *symbols) target(x expr, param bool) {
	switch x := x.(type) {
	case *nameExpr:
		if param {
			s.param(x.name)
		} else {
			s.store(x.name)
		}
	case *nsRef:
		s.load(x.name)
	case *tupleExpr:
		for _, item := range x.items {
			s.target(item, param)
		}
	}
}

func (s *symbols) exprs(xs ...expr) {
	for _, x := range xs {
		s.expr(x)
	}
}

func (s *symbols) expr(x expr) {
	walkExpr(x, func(name string, _ nameUse) { s.load(name) })
}

// macro finds the names of a macro's own frame.
func (s *symbols) macro(def *macroDef) {
	for _, p := range def.params {
		s.param(p)
	}
	s.exprs(def.defaults...)
	s.statements(def.body)
}

// nameUse is what happens to a name.
type nameUse int

const (
	useLoad nameUse = iota
	useStore
	useParam
)

// mentions reports whether body reads name before it gives the name a meaning of
// its own. Unlike symbols it looks into inner frames, but not into blocks.
func mentions(body []stmt, name string) bool {
	read, own := false, false
	walkStmts(body, func(n string, use nameUse) {
		if n != name {
			return
		}
		if use == useLoad {
			read = read || !own
		} else {
			own = true
		}
	})
	return read
}

func walkStmts(body []stmt, visit func(string, nameUse)) {
	for _, s := range body {
		walkStmt(s, visit)
	}
}

func walkStmt(s stmt, visit func(string, nameUse)) {
	switch s := s.(type) {
	case *outputStmt:
		walkExprs(s.items, visit)
	case *ifStmt:
		walkExpr(s.test, visit)
		walkStmts(s.body, visit)
		for _, e := range s.elifs {
			walkStmt(e, visit)
		}
		walkStmts(s.other, visit)
	case *forStmt:
		walkTarget(s.target, useStore, visit)
		walkExpr(s.iter, visit)
		walkStmts(s.body, visit)
		walkStmts(s.other, visit)
		walkExpr(s.test, visit)
	case *setStmt:
		walkTarget(s.target, useStore, visit)
		walkExpr(s.value, visit)
	case *setBlockStmt:
		walkTarget(s.target, useStore, visit)
		if s.filter != nil {
			walkExpr(s.filter, visit)
		}
		walkStmts(s.body, visit)
	case *macroStmt:
		walkMacro(&s.macroDef, visit)
	case *callStmt:
		walkExpr(s.call, visit)
		walkMacro(&s.macroDef, visit)
	case *generationStmt:
		walkMacro(&s.macroDef, visit)
	case *filterStmt:
		walkStmts(s.body, visit)
		walkExpr(s.filter, visit)
	case *withStmt:
		for _, t := range s.targets {
			walkTarget(t, useParam, visit)
		}
		walkExprs(s.values, visit)
		walkStmts(s.body, visit)
	case *autoescapeStmt:
		walkExpr(s.option, visit)
		walkStmts(s.body, visit)
	}
}

func walkMacro(def *macroDef, visit func(string, nameUse)) {
	for _, p := range def.params {
		visit(p, useParam)
	}
	walkExprs(def.defaults, visit)
	walkStmts(def.body, visit)
}

func walkTarget(x expr, use nameUse, visit func(string, nameUse)) {
	switch x := x.(type) {
	case *nameExpr:
		visit(x.name, use)
	case *tupleExpr:
		for _, item := range x.items {
			walkTarget(item, use, visit)
		}
	}
}

func walkExprs(xs []expr, visit func(string, nameUse)) {
	for _, x := range xs {
		walkExpr(x, visit)
	}
}

// walkExpr visits the names an expression reads, in the order of the source.
func walkExpr(x expr, visit func(string, nameUse)) {
	if name, ok := x.(*nameExpr); ok {
		visit(name.name, useLoad)
	}
	walkExprs(parts(x), visit)
}

// parts returns the expressions directly inside of x, in the order of the source. Those that are
// left out may be nil.
func parts(x expr) []expr {
	switch x := x.(type) {
	case *tupleExpr:
		return x.items
	case *listExpr:
		return x.items
	case *dictExpr:
		var out []expr
		for i := range x.keys {
			out = append(out, x.keys[i], x.values[i])
		}
		return out
	case *unaryExpr:
		return []expr{x.x}
	case *binaryExpr:
		return []expr{x.x, x.y}
	case *concatExpr:
		return x.items
	case *compareExpr:
		return append([]expr{x.first}, x.rest...)
	case *condExpr:
		return []expr{x.test, x.then, x.other}
	case *attrExpr:
		return []expr{x.x}
	case *itemExpr:
		return []expr{x.x, x.index}
	case *sliceExpr:
		return []expr{x.start, x.stop, x.step}
	case *callExpr:
		return append([]expr{x.fn}, x.args.parts()...)
	case *filterExpr:
		return append([]expr{x.x}, x.args.parts()...)
	case *testExpr:
		return append([]expr{x.x}, x.args.parts()...)
	}
	return nil
}

func (c *callArgs) parts() []expr {
	return slices.Concat(c.args, c.values, []expr{c.star, c.dict})
}
