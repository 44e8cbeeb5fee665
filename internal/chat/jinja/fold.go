package jinja

import (
	"math"
	"slices"
	"strings"
)

// Jinja computes constant expressions when it compiles a template, and a few of them come out
// differently than they would while rendering: a slice of a value without items is undefined
// instead of an error, `~` does not escape, and a result that Python does not print as an
// expression (an infinite float) is an error. Only expressions with one of these are folded here.

// errUnnamed is what Python reports for a float that Jinja wrote as its name.
var errUnnamed = typeErrorf("name 'inf' is not defined")

// folded returns a constant expression as Jinja's optimizer computes it, or nil if that is how it
// renders, too.
func (c *compiler) folded(x expr, f frame) evalFn {
	if c.folding || f.escape.volatile || !foldable(x) {
		return nil
	}
	v, ok := c.constant(x, f)
	if !ok || !writable(v) {
		return nil
	}
	return c.literal(v, x.exprLine())
}

// literal compiles a constant.
func (c *compiler) literal(v Value, line int) evalFn {
	if !c.folding && unnamed(v) {
		return func(*env) (Value, error) { return nil, atLine(errUnnamed, line) }
	}
	return func(*env) (Value, error) { return v, nil }
}

// constantOutput returns what a constant expression prints, if Jinja computes it beforehand and that
// makes a difference.
func (c *compiler) constantOutput(x expr, f frame) (string, bool) {
	if !foldable(x) && !f.escape.volatile {
		return "", false
	}
	v, ok := c.constant(x, f)
	if !ok {
		return "", false
	}
	s, err := escaping{on: f.escape.on}.print(foldingState(f), v)
	return s, err == nil
}

// constant returns the value of an expression without names and calls. Expressions that fail have
// none: they fail when they render.
func (c *compiler) constant(x expr, f frame) (Value, bool) {
	if !isConstant(x, f.escape.volatile) || c.err != nil {
		return nil, false
	}
	inner := &compiler{folding: true, depth: c.depth}
	eval := inner.expr(x, f.softened())
	if inner.err != nil {
		return nil, false
	}
	v, err := eval(&env{st: foldingState(f)})
	return v, err == nil
}

// foldingState returns the state in which constants are computed, with small limits.
func foldingState(f frame) *state {
	limits := Limits{Steps: 100_000, Alloc: 1 << 20, Output: 1 << 20}
	return &state{limits: limits.withDefaults(), out: &strings.Builder{}, vars: &Dict{}, escape: f.escape.on}
}

// contextFilters need variables of the template, so that Jinja does not compute them beforehand.
var contextFilters = []string{"map", "select", "reject", "selectattr", "rejectattr", "random"}

// isConstant reports whether an expression has a value before the template renders. In a volatile
// place filters and tests have none.
func isConstant(x expr, volatile bool) bool {
	switch x := x.(type) {
	case *nameExpr, *callExpr:
		return false
	case *filterExpr:
		if x.x == nil || volatile || slices.Contains(contextFilters, x.name) || filterNamed(x.name) == nil {
			return false
		}
	case *testExpr:
		if volatile || testNamed(x.name) == nil {
			return false
		}
	}
	return !slices.ContainsFunc(parts(x), func(part expr) bool { return !isConstant(part, volatile) })
}

// foldable reports whether computing an expression beforehand may make a difference.
func foldable(x expr) bool {
	switch x := x.(type) {
	case *sliceExpr, *concatExpr:
		return true
	case *constExpr:
		return unnamed(x.value)
	}
	return slices.ContainsFunc(parts(x), foldable)
}

// writable reports whether Jinja writes a constant into the code it makes.
func writable(v Value) bool {
	switch v := v.(type) {
	case *List:
		return !slices.ContainsFunc(v.Items, func(item Value) bool { return !writable(item) })
	case *Tuple:
		return !v.group && !slices.ContainsFunc(v.Items, func(item Value) bool { return !writable(item) })
	case *Dict:
		return !slices.ContainsFunc(v.keys, func(k Value) bool { return !writable(k) }) &&
			!slices.ContainsFunc(v.vals, func(item Value) bool { return !writable(item) })
	case nil, bool, float64, string, markup, *rangeValue:
		return true
	}
	return typeName(v) == "int"
}

// unnamed reports whether a constant has a float that Python prints as a name: inf or nan.
func unnamed(v Value) bool {
	switch v := v.(type) {
	case float64:
		return math.IsInf(v, 0) || math.IsNaN(v)
	case *List:
		return slices.ContainsFunc(v.Items, unnamed)
	case *Tuple:
		return slices.ContainsFunc(v.Items, unnamed)
	case *Dict:
		return slices.ContainsFunc(v.keys, unnamed) || slices.ContainsFunc(v.vals, unnamed)
	}
	return false
}
