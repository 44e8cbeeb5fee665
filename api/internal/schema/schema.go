// Package schema describes JSON values as JSON Schema 2020-12, which OpenAPI 3.1 uses. Of makes the
// schema of a Go type by reflection. It uses the names of json tags, and the values of strings from
// tags such as `enum:"a,b"`.
package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A Schema is a JSON Schema. The zero value allows every value.
type Schema struct {
	Type       Types              `json:"type,omitempty"`
	Enum       []string           `json:"enum,omitempty"` // nil allows all values
	Format     string             `json:"format,omitempty"`
	Properties map[string]*Schema `json:"properties,omitempty"`
	Required   []string           `json:"required,omitempty"`
	More       *Schema            `json:"additionalProperties,omitempty"`
	Items      *Schema            `json:"items,omitempty"`
	AnyOf      []*Schema          `json:"anyOf,omitempty"`
	Minimum    *float64           `json:"minimum,omitempty"`
	Maximum    *float64           `json:"maximum,omitempty"`
}

// Types are the types that a value may have. An empty list allows all types.
type Types []string

// MarshalJSON writes a single type as a string.
func (t Types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// Object returns the schema of an object without known properties.
func Object() *Schema { return &Schema{Type: Types{"object"}} }

// Property returns the schema of a property. The first call for a name adds a schema that allows
// every value.
func (s *Schema) Property(name string) *Schema {
	if s.Properties == nil {
		s.Properties = map[string]*Schema{}
	}
	if s.Properties[name] == nil {
		s.Properties[name] = &Schema{}
	}
	return s.Properties[name]
}

// Require adds name to the required properties.
func (s *Schema) Require(name string) {
	s.Property(name)
	if !slices.Contains(s.Required, name) {
		s.Required = append(s.Required, name)
	}
}

// OrNull makes s also allow null, and returns s.
func (s *Schema) OrNull() *Schema {
	switch {
	case len(s.Type) == 0 && s.AnyOf == nil || slices.Contains(s.Type, "null"): // null is already allowed
	case s.AnyOf != nil:
		s.AnyOf = append(s.AnyOf, &Schema{Type: Types{"null"}})
	default:
		s.Type = append(s.Type, "null")
	}
	return s
}

// A Sampler is a type with its own MarshalJSON. Samples returns values of it, one for each form of
// its JSON, without empty lists.
type Sampler interface{ Samples() []any }

// AnyOf describes a value that has the type of any of its elements.
type AnyOf []any

// Samples implements Sampler.
func (a AnyOf) Samples() (samples []any) {
	for _, v := range a {
		samples = append(samples, Like{v})
	}
	return samples
}

// Like is a sample for all values of a Go type.
type Like struct{ Value any }

// Of returns the schema of v's type. A nil interface allows every value.
func Of(v any) *Schema {
	if v == nil {
		return &Schema{}
	}
	if several, ok := v.(AnyOf); ok {
		return ofSamples(several.Samples())
	}
	return of(reflect.TypeOf(v), nil)
}

var (
	timeType    = reflect.TypeFor[time.Time]()
	samplerType = reflect.TypeFor[Sampler]()
	writerType  = reflect.TypeFor[json.Marshaler]()
)

// of returns the schema of t. outer has the types that contain t: a type that contains itself
// allows every value.
func of(t reflect.Type, outer []reflect.Type) *Schema {
	if slices.Contains(outer, t) {
		return &Schema{}
	}
	outer = append(slices.Clip(outer), t)
	switch {
	case t == timeType:
		return &Schema{Type: Types{"string"}, Format: "date-time"}
	case t.Implements(samplerType):
		return ofSamples(reflect.Zero(t).Interface().(Sampler).Samples())
	case t.Kind() == reflect.Pointer:
		return of(t.Elem(), outer).OrNull()
	case t.Implements(writerType), reflect.PointerTo(t).Implements(writerType):
		return &Schema{}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: Types{"boolean"}}
	case reflect.String:
		return &Schema{Type: Types{"string"}}
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: Types{"number"}}
	case reflect.Slice, reflect.Array:
		list := &Schema{Type: Types{"array"}, Items: of(t.Elem(), outer)}
		if t.Kind() == reflect.Slice {
			list.OrNull()
		}
		return list
	case reflect.Map:
		return (&Schema{Type: Types{"object"}, More: of(t.Elem(), outer)}).OrNull()
	case reflect.Struct:
		s := Object()
		s.addFields(t, outer)
		return s
	case reflect.Interface:
		return &Schema{}
	}
	return &Schema{Type: Types{"integer"}}
}

// addFields adds the fields of a struct. A field that is always written is required.
func (s *Schema) addFields(t reflect.Type, outer []reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			s.addFields(inner, outer)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		s.Property(name)
		s.Properties[name] = of(f.Type, outer)
		if values, ok := f.Tag.Lookup("enum"); ok {
			s.Properties[name].Enum = strings.Split(values, ",")
		}
		if !strings.Contains(options, "omit") {
			s.Require(name)
		}
	}
}

// ofSamples returns a schema that allows the form of each sample.
func ofSamples(samples []any) *Schema {
	s := &Schema{}
	for _, v := range samples {
		if l, ok := v.(Like); ok {
			s.AnyOf = append(s.AnyOf, Of(l.Value))
			continue
		}
		var plain any
		if b, err := json.Marshal(v); err != nil || json.Unmarshal(b, &plain) != nil {
			continue // the sample does not marshal; a test of the document reports it
		}
		s.AnyOf = append(s.AnyOf, ofValue(plain))
	}
	return s
}

// ofValue returns a schema that allows a JSON value and others of the same form. null allows every
// value.
func ofValue(v any) *Schema {
	switch v := v.(type) {
	case bool:
		return &Schema{Type: Types{"boolean"}}
	case float64:
		return &Schema{Type: Types{"number"}}
	case string:
		return &Schema{Type: Types{"string"}}
	case []any:
		list := &Schema{Type: Types{"array"}}
		if len(v) > 0 {
			list.Items = ofValue(v[0])
		}
		return list
	case map[string]any:
		s := Object()
		for name, of := range v {
			s.Property(name)
			s.Properties[name] = ofValue(of)
			s.Require(name)
		}
		slices.Sort(s.Required)
		return s
	}
	return &Schema{}
}
