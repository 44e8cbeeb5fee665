package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// Value is a Python value. Its dynamic type is one of
//
//	nil       None
//	bool      True, False
//	int64     int; *big.Int beyond 64 bits (printed and compared, no arithmetic)
//	float64   float
//	string    str, of valid UTF-8
//	*List     list
//	*Tuple    tuple
//	*Dict     dict
//
// or one the engine makes while it renders (undefined values, ranges, generators,
// macros, ...). A Value given to a template is read only while it renders, so one
// may be shared by concurrent renderings.
type Value = any

// List is a Python list.
type List struct{ Items []Value }

// Tuple is a Python tuple. A group of the groupby filter names its two items.
type Tuple struct {
	Items []Value
	group bool
}

// NewList makes a list of items, which it keeps.
func NewList(items ...Value) *List { return &List{Items: items} }

// Markup is text that needs no HTML escaping, what the safe filter makes.
type markup string

// undefined stands for what is not there. It prints as nothing, is false and
// empty; anything else done with it is an error with its message.
type undefined struct {
	message string
	kind    Kind
}

func undef(format string, args ...any) *undefined {
	return &undefined{message: fmt.Sprintf(format, args...), kind: KindUndefined}
}

func (u *undefined) err() error { return failf(u.kind, "%s", u.message) }

// unbound is what a variable holds before it is set. It never reaches a template.
type unbound struct{}

var missing Value = unbound{}

// rangeValue is range(start, stop, step) with n items.
type rangeValue struct{ start, stop, step, n int64 }

func (r *rangeValue) at(i int) Value { return r.start + int64(i)*r.step }

// view is dict.keys(), dict.values() or dict.items().
type view struct {
	dict *Dict
	name string // "keys", "values", "items"
}

func (v *view) at(i int) Value {
	switch v.name {
	case "keys":
		return v.dict.keys[i]
	case "values":
		return v.dict.vals[i]
	}
	return &Tuple{Items: []Value{v.dict.keys[i], v.dict.vals[i]}}
}

// generator is an iterator that can be walked once. Its type name is Python's.
type generator struct {
	typ  string
	next func() (Value, bool, error)
}

// namespace is the one thing a template may change.
type namespace struct{ attrs *Dict }

// callable is a function, a bound method or a class of the environment.
type callable struct {
	name string
	fn   func(st *state, c *args) (Value, error)
}

func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *rangeValue:
		return "range"
	case *view:
		return "dict_" + v.name
	case *generator:
		return v.typ
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loopContext:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *callable:
		return "builtin_function_or_method"
	}
	return fmt.Sprintf("%T", v)
}

// describe names v as Jinja's messages about missing attributes do.
func describe(v Value) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// text returns the characters of a str or Markup.
func text(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// like gives s the type of v, so that methods of Markup return Markup.
func like(v Value, s string) Value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

func truth(v Value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	}
	if n, ok := length(v); ok {
		return n > 0
	}
	return true
}

// length is len(v); false where Python's len fails.
func length(v Value) (int, bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case markup:
		return utf8.RuneCountInString(string(v)), true
	case *List:
		return len(v.Items), true
	case *Tuple:
		return len(v.Items), true
	case *Dict:
		return v.Len(), true
	case *view:
		return v.dict.Len(), true
	case *rangeValue:
		return int(v.n), true
	case *undefined:
		return 0, true
	case *loopContext:
		return v.length, v.length >= 0
	}
	return 0, false
}

// integer returns v as Python's index protocol does: ints and bools.
func integer(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// number returns an int, bool or float as a float64.
func number(v Value) (float64, bool) {
	if i, ok := integer(v); ok {
		return float64(i), true
	}
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	return 0, false
}

// equal is a == b. It counts its work, as values may be large.
func equal(st *state, a, b Value) (bool, error) { return equalAt(st, a, b, 0) }

func equalAt(st *state, a, b Value, depth int) (bool, error) {
	if depth > maxNesting {
		return false, failf(KindLimit, "maximum recursion depth exceeded in comparison")
	}
	if s, ok := text(a); ok {
		t, ok := text(b)
		if !ok || len(s) != len(t) {
			return false, nil
		}
		return s == t, st.work(len(s) / 16)
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *big.Int:
		c, ok := b.(*big.Int)
		return ok && a.Cmp(c) == 0, nil
	case *List:
		if c, ok := b.(*List); ok {
			return equalItems(st, a.Items, c.Items, depth)
		}
		return false, nil
	case *Tuple:
		if c, ok := b.(*Tuple); ok {
			return equalItems(st, a.Items, c.Items, depth)
		}
		return false, nil
	case *Dict:
		if c, ok := b.(*Dict); ok {
			return equalDicts(st, a, c, depth)
		}
		return false, nil
	case *view:
		if c, ok := b.(*view); ok && a.name != "values" && c.name != "values" {
			return equalViews(st, a, c)
		}
	case *rangeValue:
		c, ok := b.(*rangeValue)
		return ok && a.n == c.n && (a.n == 0 || a.start == c.start && (a.n == 1 || a.step == c.step)), nil
	}
	return equalNumbers(a, b), nil
}

// equalNumbers compares numbers, and anything else by identity.
func equalNumbers(a, b Value) bool {
	i, iok := integer(a)
	j, jok := integer(b)
	if iok && jok {
		return i == j
	}
	f, fok := number(a)
	g, gok := number(b)
	if fok && gok {
		if iok || jok { // int against float: no rounding may make them equal
			return f == g && (math.Abs(f) < 1<<53 || sameInteger(a, b))
		}
		return f == g
	}
	return !fok && !gok && a == b
}

func sameInteger(a, b Value) bool {
	return compareBig(a, b) == 0
}

// compareBig compares two numbers without rounding; NaN compares as 0.
func compareBig(a, b Value) int {
	exact := func(v Value) *big.Float {
		if i, ok := integer(v); ok {
			return new(big.Float).SetInt64(i)
		}
		switch v := v.(type) {
		case *big.Int:
			return new(big.Float).SetInt(v)
		case float64:
			if !math.IsNaN(v) {
				return new(big.Float).SetFloat64(v)
			}
		}
		return new(big.Float)
	}
	return exact(a).Cmp(exact(b))
}

func equalItems(st *state, a, b []Value, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if err := st.work(1); err != nil {
			return false, err
		}
		if same, err := equalAt(st, a[i], b[i], depth+1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// equalViews compares keys or items as sets.
func equalViews(st *state, a, b *view) (bool, error) {
	if a.dict.Len() != b.dict.Len() {
		return false, nil
	}
	for i := range a.dict.Len() {
		if ok, err := contains(st, b, a.at(i)); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func equalDicts(st *state, a, b *Dict, depth int) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for i, k := range a.keys {
		if err := st.work(1); err != nil {
			return false, err
		}
		w, ok := b.get(k)
		if !ok {
			return false, nil
		}
		if same, err := equalAt(st, a.vals[i], w, depth+1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// compare orders a and b as Python's < does: negative, zero or positive. Values
// without an order are an error that names op. unordered reports a NaN.
func compare(st *state, op string, a, b Value) (order int, unordered bool, err error) {
	return compareAt(st, op, a, b, 0)
}

func compareAt(st *state, op string, a, b Value, depth int) (int, bool, error) {
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, false, u.err()
		}
	}
	if s, ok := text(a); ok {
		if t, ok := text(b); ok {
			return strings.Compare(s, t), false, st.work(1 + min(len(s), len(t))/16)
		}
	}
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return threeWay(i, j), false, nil
		}
	}
	f, fok := number(a)
	g, gok := number(b)
	if fok && gok {
		if math.IsNaN(f) || math.IsNaN(g) {
			return 0, true, nil
		}
		return compareBig(a, b), false, nil
	}
	if x, y, ok := bothSequences(a, b); ok && depth < maxNesting {
		return compareItems(st, op, x, y, depth)
	}
	return 0, false, typeErrorf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func threeWay(i, j int64) int {
	switch {
	case i < j:
		return -1
	case i > j:
		return 1
	}
	return 0
}

func bothSequences(a, b Value) (x, y []Value, ok bool) {
	switch a := a.(type) {
	case *List:
		if b, ok := b.(*List); ok {
			return a.Items, b.Items, true
		}
	case *Tuple:
		if b, ok := b.(*Tuple); ok {
			return a.Items, b.Items, true
		}
	}
	return nil, nil, false
}

func compareItems(st *state, op string, x, y []Value, depth int) (int, bool, error) {
	for i := range min(len(x), len(y)) {
		if err := st.work(1); err != nil {
			return 0, false, err
		}
		same, err := equalAt(st, x[i], y[i], depth+1)
		if err != nil {
			return 0, false, err
		}
		if !same {
			return compareAt(st, op, x[i], y[i], depth+1)
		}
	}
	return threeWay(int64(len(x)), int64(len(y))), false, nil
}
