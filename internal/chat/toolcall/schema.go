package toolcall

import (
	"bytes"
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// types is a set of JSON types.
type types uint8

const (
	stringType types = 1 << iota
	numberType
	boolType
	nullType
	objectType
	arrayType

	anyType = stringType | numberType | boolType | nullType | objectType | arrayType
)

// A toolbox holds the schemas of the parameters of the tools that a model may call.
type toolbox map[string]*chat.Dict

// newToolbox reads tools in the form of clients: objects with a function, or the functions
// themselves. A malformed tool counts as one without parameters.
func newToolbox(tools chat.Value) toolbox {
	list, _ := tools.(*chat.List)
	if list == nil {
		return nil
	}
	box := toolbox{}
	for _, item := range list.Items {
		tool := member(item, "function")
		if tool == nil {
			tool, _ = item.(*chat.Dict)
		}
		if tool == nil {
			continue
		}
		name, _ := tool.Get("name")
		if s, ok := name.(string); ok {
			box[s] = member(tool, "parameters")
		}
	}
	return box
}

// parameters returns the names of a function's parameters, or nil if the schema does not list them.
func (b toolbox) parameters(tool string) (names []string) {
	properties := member(b[tool], "properties")
	if properties == nil {
		return nil
	}
	for name := range properties.All() {
		names = append(names, name)
	}
	return names
}

// types returns the types that a parameter may have. If the schema does not say, it returns all
// types.
func (b toolbox) types(tool, parameter string) types {
	properties := member(b[tool], "properties")
	if properties == nil {
		return anyType
	}
	schema, _ := properties.Get(parameter)
	if t := typesOf(schema, b[tool], 0); t != 0 {
		return t
	}
	return anyType
}

// member returns the object v[key] of an object v, or nil if there is none.
func member(v chat.Value, key string) *chat.Dict {
	d, _ := v.(*chat.Dict)
	if d == nil {
		return nil
	}
	m, _ := d.Get(key)
	d, _ = m.(*chat.Dict)
	return d
}

// typesOf returns the types that a schema within root allows, or 0 if it does not say.
func typesOf(schema chat.Value, root *chat.Dict, depth int) types {
	d, _ := schema.(*chat.Dict)
	if d == nil || depth > 8 {
		return 0
	}
	if t, ok := d.Get("type"); ok {
		return namedTypes(t)
	}
	if v, ok := d.Get("const"); ok {
		return typeOf(v)
	}
	if v, ok := d.Get("$ref"); ok {
		return typesOf(definition(v, root), root, depth+1)
	}
	var all types
	for _, key := range []string{"anyOf", "oneOf"} {
		list, _ := d.Get(key)
		if list, ok := list.(*chat.List); ok {
			for _, item := range list.Items {
				t := typesOf(item, root, depth+1)
				if t == 0 {
					return 0
				}
				all |= t
			}
		}
	}
	if list, _ := d.Get("enum"); all == 0 && list != nil {
		if list, ok := list.(*chat.List); ok {
			for _, item := range list.Items {
				all |= typeOf(item)
			}
		}
	}
	return all
}

// definition returns the schema of a reference to a definition of root, or nil for any other
// reference.
func definition(ref chat.Value, root *chat.Dict) chat.Value {
	text, _ := ref.(string)
	for _, key := range []string{"$defs", "definitions"} {
		if name, ok := strings.CutPrefix(text, "#/"+key+"/"); ok {
			if definitions := member(root, key); definitions != nil {
				schema, _ := definitions.Get(name)
				return schema
			}
		}
	}
	return nil
}

func namedTypes(v chat.Value) types {
	switch v := v.(type) {
	case string:
		switch v {
		case "string":
			return stringType
		case "number", "integer":
			return numberType
		case "boolean":
			return boolType
		case "null":
			return nullType
		case "object":
			return objectType
		case "array":
			return arrayType
		}
	case *chat.List:
		var all types
		for _, item := range v.Items {
			all |= namedTypes(item)
		}
		return all
	}
	return 0
}

func typeOf(v chat.Value) types {
	switch v.(type) {
	case nil:
		return nullType
	case bool:
		return boolType
	case string:
		return stringType
	case *chat.List:
		return arrayType
	case *chat.Dict:
		return objectType
	}
	return numberType
}

// appendTyped appends text as a value of an allowed type, if text is such a value in JSON or in
// Python. Otherwise it appends text as a string.
func appendTyped(out, text []byte, allowed types) []byte {
	for _, f := range []flavor{jsonFlavor, pythonFlavor} {
		value, ok := convert(text, f)
		if !ok {
			continue
		}
		t := typeOfText(value)
		if f == pythonFlavor && allowed == anyType && t == numberType {
			continue // most models mean text by 1_000
		}
		if t == stringType && allowed&stringType != 0 {
			break // the quotes belong to the text
		}
		if allowed&t != 0 || allowed&stringType == 0 {
			return append(out, value...)
		}
	}
	out = append(out, '"')
	for _, c := range text {
		out = appendEscaped(out, c)
	}
	return append(out, '"')
}

// convert reads all of text as one value.
func convert(text []byte, f flavor) ([]byte, bool) {
	var v value
	v.start(f)
	var out []byte
	ver := more
	text = bytes.TrimSpace(text)
	for i, c := range text {
		if out, ver = v.push(c, out); ver != more {
			return out, ver == done && i == len(text)-1
		}
	}
	return v.finish(out)
}

// typeOfText is the type of a value in JSON.
func typeOfText(value []byte) types {
	switch value[0] {
	case '"':
		return stringType
	case '{':
		return objectType
	case '[':
		return arrayType
	case 't', 'f':
		return boolType
	case 'n':
		return nullType
	}
	return numberType
}
