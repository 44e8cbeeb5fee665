package jinja

import (
	"math/big"
	"unicode"
)

// testFunc is a test: v is what stands before `is`.
type testFunc func(st *state, v Value, c *args) (bool, error)

// testNamed finds a test, nil if there is none.
func testNamed(name string) testFunc {
	if f := typeTest(name); f != nil {
		return noArgs(f)
	}
	switch name {
	case "odd":
		return divisible(2, 1)
	case "even":
		return divisible(2, 0)
	case "divisibleby":
		return func(st *state, v Value, c *args) (bool, error) {
			a, err := c.bind(1, "num")
			if err != nil {
				return false, err
			}
			return remainderIs(st, v, a[0], 0)
		}
	case "filter":
		return known(func(name string) bool { return filterNamed(name) != nil })
	case "test":
		return known(func(name string) bool { return testNamed(name) != nil })
	case "lower":
		return cased(unicode.IsLower)
	case "upper":
		return cased(unicode.IsUpper)
	case "sameas":
		return func(st *state, v Value, c *args) (bool, error) {
			a, err := c.bind(1, "other")
			return err == nil && same(v, a[0]), err
		}
	case "in":
		return func(st *state, v Value, c *args) (bool, error) {
			a, err := c.bind(1, "seq")
			if err != nil {
				return false, err
			}
			return contains(st, a[0], v)
		}
	}
	if op := relationTest(name); op != "" {
		return func(st *state, v Value, c *args) (bool, error) {
			if err := c.positional(1, 1); err != nil {
				return false, err
			}
			return relation(st, op, v, c.pos[0])
		}
	}
	return nil
}

// relationTest returns the operator a comparing test stands for.
func relationTest(name string) string {
	switch name {
	case "eq", "equalto", "==":
		return "=="
	case "ne", "!=":
		return "!="
	case "gt", "greaterthan", ">":
		return ">"
	case "ge", ">=":
		return ">="
	case "lt", "lessthan", "<":
		return "<"
	case "le", "<=":
		return "<="
	}
	return ""
}

// typeTest returns a test of what v is.
func typeTest(name string) func(v Value) bool {
	switch name {
	case "defined":
		return func(v Value) bool { return !isA[*undefined](v) }
	case "undefined":
		return isA[*undefined]
	case "none":
		return func(v Value) bool { return v == nil }
	case "boolean":
		return isA[bool]
	case "true":
		return func(v Value) bool { return v == Value(true) }
	case "false":
		return func(v Value) bool { return v == Value(false) }
	case "integer":
		return func(v Value) bool { return isA[int64](v) || isA[*big.Int](v) }
	case "float":
		return isA[float64]
	case "number":
		return func(v Value) bool { _, ok := number(v); return ok }
	case "string":
		return func(v Value) bool { _, ok := text(v); return ok }
	case "mapping":
		return isA[*Dict]
	case "sequence":
		return isSequence
	case "iterable":
		return iterable
	case "callable":
		return isCallable
	case "escaped":
		return isA[markup]
	}
	return nil
}

func isA[T any](v Value) bool { _, ok := v.(T); return ok }

// isSequence is Jinja's test: values with a length and items. Dicts and undefined
// values do.
func isSequence(v Value) bool {
	switch v.(type) {
	case string, markup, *List, *Tuple, *Dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *callable, *macro, *loopContext, *undefined:
		return true
	}
	return false
}

func noArgs(f func(v Value) bool) testFunc {
	return func(_ *state, v Value, c *args) (bool, error) {
		if _, err := c.bind(0); err != nil {
			return false, err
		}
		return f(v), nil
	}
}

func remainderIs(st *state, v, by Value, want int64) (bool, error) {
	rest, err := arithmetic(st, "%", v, by)
	if err != nil {
		return false, err
	}
	return equal(st, rest, want)
}

func divisible(by, rest int64) testFunc {
	return func(st *state, v Value, c *args) (bool, error) {
		if _, err := c.bind(0); err != nil {
			return false, err
		}
		return remainderIs(st, v, by, rest)
	}
}

func known(has func(name string) bool) testFunc {
	return func(_ *state, v Value, c *args) (bool, error) {
		if _, err := c.bind(0); err != nil {
			return false, err
		}
		name, ok := text(v)
		if _, err := (&Dict{}).find(v); err != nil { // the name may be any value that can be a key
			return false, err
		}
		return ok && has(name), nil
	}
}

func cased(is func(rune) bool) testFunc {
	return func(st *state, v Value, c *args) (bool, error) {
		if _, err := c.bind(0); err != nil {
			return false, err
		}
		s, err := str(st, v)
		return hasCase(s, is), err
	}
}

// same is Python's `is`, as far as it means something: the same list or dict, or
// an equal immutable value of the same type.
func same(a, b Value) bool { return typeName(a) == typeName(b) && a == b }
