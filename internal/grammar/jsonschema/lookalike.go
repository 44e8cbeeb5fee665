package jsonschema

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// types is a set of types other than strings.
type types uint8

const (
	nullType types = 1 << iota
	boolType
	numberType
	arrayType
	objectType

	everyType = nullType | boolType | numberType | arrayType | objectType
)

// texts matches the texts that may stand for a value of one of the types.
func (t types) texts() *dfa.Expr {
	space := dfa.Star(dfa.Alt(dfa.Byte('\t', '\r'), dfa.Runes([]dfa.Range{
		{Lo: ' ', Hi: ' '}, {Lo: 0x85, Hi: 0x85}, {Lo: 0xA0, Hi: 0xA0}, {Lo: 0x1680, Hi: 0x1680}, {Lo: 0x2000, Hi: 0x200A},
		{Lo: 0x2028, Hi: 0x2029}, {Lo: 0x202F, Hi: 0x202F}, {Lo: 0x205F, Hi: 0x205F}, {Lo: 0x3000, Hi: 0x3000},
	})))
	of := func(s string) *dfa.Expr {
		var alts []*dfa.Expr
		for i := range len(s) {
			alts = append(alts, dfa.Byte(s[i], s[i]))
		}
		return dfa.Alt(alts...)
	}
	any := dfa.Star(dfa.Byte(0, 0xFF))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	var alts []*dfa.Expr
	for _, p := range []struct {
		t types
		e []*dfa.Expr
	}{
		{nullType, []*dfa.Expr{dfa.Literal("null"), dfa.Literal("None")}},
		{boolType, []*dfa.Expr{dfa.Literal("true"), dfa.Literal("True"), dfa.Literal("false"), dfa.Literal("False")}},
		{numberType, []*dfa.Expr{dfa.Concat(of("-+._0123456789"), dfa.Star(of("-+._0123456789"+letters)))}},
		{arrayType, []*dfa.Expr{dfa.Concat(of("[("), any, of("])"))}},
		{objectType, []*dfa.Expr{dfa.Concat(of("{"), any, of("}"))}},
	} {
		if t&p.t != 0 {
			alts = append(alts, p.e...)
		}
	}
	return dfa.Concat(space, dfa.Alt(alts...), space)
}

// lookalikes returns the types of values that a reader might read from the text of a string of s,
// the set of the property name. The reader knows the property's schema, but does not follow
// references.
func (c *compiler) lookalikes(s *set, name string) types {
	if c.layout.Equals != c.layout.EqualsText || s.any() {
		return 0 // the text is unambiguous, or it may be anything
	}
	root, _ := c.root.(*object)
	if root == nil {
		return everyType
	}
	properties, _ := root.values["properties"].(*object)
	if properties == nil {
		return everyType
	}
	t, known := c.declared(properties.values[name], 0)
	if !known {
		return everyType
	}
	return t
}

// any reports whether s allows every value.
func (s *set) any() bool {
	return s.null && s.yes && s.no &&
		slices.ContainsFunc(s.numbers, (*number).free) &&
		slices.ContainsFunc(s.strings, (*str).free) &&
		slices.ContainsFunc(s.arrays, func(a *array) bool {
			return a.min == 0 && a.max < 0 && len(a.layers)+len(a.contains) == 0 && a.unique == ""
		}) &&
		slices.ContainsFunc(s.objects, func(o *record) bool {
			return o.min == 0 && o.max < 0 && len(o.required)+len(o.layers) == 0 && o.names == nil
		})
}

// declared returns the types other than strings that a schema names. known is false if it names
// none.
func (c *compiler) declared(v any, depth int) (t types, known bool) {
	o, _ := v.(*object)
	if o == nil || depth > 8 {
		return 0, false
	}
	if v, ok := o.get("type"); ok {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, item := range list {
			switch item {
			case "null":
				t |= nullType
			case "boolean":
				t |= boolType
			case "number", "integer":
				t |= numberType
			case "array":
				t |= arrayType
			case "object":
				t |= objectType
			}
		}
		return t, len(list) > 0
	}
	if v, ok := o.get("const"); ok {
		return typeOf(v), true
	}
	if ref, ok := o.values["$ref"].(string); ok {
		root, _ := c.root.(*object)
		for _, key := range []string{"$defs", "definitions"} {
			if name, ok := strings.CutPrefix(ref, "#/"+key+"/"); ok && root != nil {
				if definitions, _ := root.values[key].(*object); definitions != nil {
					return c.declared(definitions.values[name], depth+1)
				}
			}
		}
		return 0, false
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		list, _ := o.values[keyword].([]any)
		for _, item := range list {
			one, ok := c.declared(item, depth+1)
			if !ok {
				return 0, false
			}
			t, known = t|one, true
		}
	}
	if list, _ := o.values["enum"].([]any); !known {
		for _, item := range list {
			t, known = t|typeOf(item), true
		}
	}
	return t, known
}

// typeOf returns the type of a value, or 0 for a string.
func typeOf(v any) types {
	switch v.(type) {
	case nil:
		return nullType
	case bool:
		return boolType
	case string:
		return 0
	case []any:
		return arrayType
	case *object:
		return objectType
	}
	return numberType
}
