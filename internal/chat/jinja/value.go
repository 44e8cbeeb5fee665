package jinja

import (
	"fmt"
	"math/big"
	"unicode/utf8"
)

// Value is a Python value. Its dynamic type is one of
//
//	nil       None
//	bool      True, False
//	int64     int; *big.Int beyond 64 bits
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

// Markup is text that needs no HTML escaping. The safe filter returns it.
type markup string

// undefined is the value of a name or member that does not exist. It prints as nothing, is false
// and empty; anything else done with it is an error with its message.
type undefined struct {
	message string
	kind    Kind
	of      Value // with attr: what lacks that attribute, instead of a message
	attr    string
}

func undef(format string, args ...any) *undefined {
	return &undefined{message: fmt.Sprintf(format, args...), kind: KindUndefined}
}

// lacking returns the undefined value of an attribute or key that v does not have. It is
// made for every optional field a template asks for, so its message waits.
func lacking(v Value, attr string) *undefined {
	return &undefined{kind: KindUndefined, of: v, attr: attr}
}

func (u *undefined) err() error {
	if u.message == "" {
		return failf(u.kind, "'%s' has no attribute '%s'", describe(u.of), u.attr)
	}
	return failf(u.kind, "%s", u.message)
}

// unbound is the value of a variable before it is set. It never reaches a template.
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
// depth is how many generators it draws from: they call each other.
type generator struct {
	typ   string
	next  func() (Value, bool, error)
	depth int
}

// newGenerator makes a generator that draws from source.
func newGenerator(typ string, source Value, next func() (Value, bool, error)) Value {
	g := &generator{typ: typ, next: next}
	if inner, ok := source.(*generator); ok {
		g.depth = inner.depth + 1
	}
	if g.depth > maxNesting {
		g.next = func() (Value, bool, error) {
			return nil, false, failf(KindLimit, "more than %d iterators draw from each other", maxNesting)
		}
	}
	return g
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
	case *blockReference:
		return "TemplateReference"
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

// length returns len(v), or false if Python's len fails.
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
		return v.length, v.length >= 0 // filterLength counts a generator's items
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
