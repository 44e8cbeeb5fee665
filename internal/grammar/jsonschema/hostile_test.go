package jsonschema_test

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
)

// hostile are schemas that would take long or much, or never end.
func hostile() map[string]string {
	deep := strings.Repeat(`{"type":"array","items":`, 400) + `{}` + strings.Repeat(`}`, 400)
	deeper := strings.Repeat(`{"not":`, 5000) + `{}` + strings.Repeat(`}`, 5000)
	var doubling, properties, alternatives strings.Builder
	for i := range 60 {
		fmt.Fprintf(&doubling, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	for i := range 3000 {
		fmt.Fprintf(&properties, `"p%d":{"type":"integer"},`, i)
		fmt.Fprintf(&alternatives, `{"type":"object","properties":{"k":{"const":%d}},"required":["k"]},`, i)
	}
	var numbers, negative, names, others, multiples, object, anchors, references strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&numbers, ",%d", i)
		fmt.Fprintf(&negative, ",-%d", i)
		fmt.Fprintf(&names, `,"name%d"`, i)
		fmt.Fprintf(&others, `,"other%d"`, i)
		fmt.Fprintf(&multiples, `,{"multipleOf":1.%d}`, i)
		fmt.Fprintf(&object, `,"name%d":1`, i)
	}
	for i := range 4000 {
		fmt.Fprintf(&anchors, `,"d%d":{"$anchor":"a%d"}`, i, i)
		fmt.Fprintf(&references, `,"p%d":{"$ref":"#a%d"}`, i, i)
	}
	return map[string]string{
		"numbers":       `{"type":"integer","enum":[` + numbers.String()[1:] + `]}`,
		"not numbers":   `{"enum":[` + numbers.String()[1:] + `],"not":{"enum":[` + negative.String()[1:] + `]}}`,
		"unique":        `{"items":{"enum":[` + numbers.String()[1:] + `]},"uniqueItems":true}`,
		"names":         `{"allOf":[{"required":[` + names.String()[1:] + `]},{"required":[` + others.String()[1:] + `]}]}`,
		"dependent":     `{"dependentRequired":{"a":[` + names.String()[1:] + `]}}`,
		"multiples":     `{"type":"integer","allOf":[` + multiples.String()[1:] + `]}`,
		"constant":      `{"const":{` + object.String()[1:] + `}}`,
		"anchors":       `{"$defs":{` + anchors.String()[1:] + `},"properties":{` + references.String()[1:] + `}}`,
		"deep":          deep,
		"deeper":        deeper,
		"doubling":      `{"$ref":"#/$defs/a0","$defs":{` + doubling.String() + `"a60":{"type":"integer"}}}`,
		"properties":    `{"type":"object","properties":{` + strings.TrimSuffix(properties.String(), ",") + `}}`,
		"alternatives":  `{"anyOf":[` + strings.TrimSuffix(alternatives.String(), ",") + `]}`,
		"exclusive":     `{"oneOf":[` + strings.TrimSuffix(alternatives.String(), ",") + `]}`,
		"itself":        `{"$ref":"#"}`,
		"itself in any": `{"anyOf":[{"$ref":"#"},{"type":"null"}]}`,
		"itself in not": `{"not":{"$ref":"#"}}`,
		"no end":        `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`,
		"counts":        `{"type":"array","minItems":1000000000,"maxItems":1000000000,"items":{"type":"array","maxItems":100000000}}`,
		"length":        `{"type":"string","minLength":1000000000,"maxLength":2000000000}`,
		"pattern":       `{"type":"string","pattern":"^(a|b)*a(a|b){30}$"}`,
		"repeats":       `{"type":"string","pattern":"((a{1000}){1000}){1000}"}`,
		"groups":        `{"type":"string","pattern":"` + strings.Repeat("(", 5000) + strings.Repeat(")", 5000) + `"}`,
		"together":      `{"type":"string","maxLength":100000,"allOf":[{"pattern":"^(\\S{1,300}@){2,9}$"},{"pattern":"^.*a.{900}$"},{"pattern":"[^b]{700,}"},{"not":{"pattern":"^(a|b)*a(a|b){30}$"}}]}`,
		"lengths":       `{"type":"string","pattern":"^(\\S{2}|\\S{3000}){1,9}$","minLength":50001,"maxLength":900000001}`,
		"periods":       `{"type":"string","minLength":400000007,"allOf":[{"pattern":"^(\\S{7})*$"},{"pattern":"^(\\S{11})*$"},{"pattern":"^(\\S{13})*\\S{3000}$"}]}`,
		"sets":          `{"type":"string","maxLength":9000,"pattern":"^(a|b|ab|ba|aab|\\S\\S){1,4000}@\\S{1,4000}$"}`,
		"names of many": `{"patternProperties":{"^\\S{1,3000}a":{},"^\\S{1,3000}b":{},"^\\S{1,3000}c":{},"^\\S{1,3000}d":{},"^\\S{1,3000}e":{},"^\\S{1,3000}f":{}}}`,
		"catastrophic":  `{"type":"string","pattern":"^(([a-z])+.)+[A-Z]([a-z])+$","maxLength":100000}`,
		"multiple":      `{"type":"number","multipleOf":0.000000000000000000000001,"minimum":1e300}`,
		"large number":  `{"const":1e999999999}`,
		"conditions":    `{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}},`, 40), ",") + `]}`,
		"patterns":      `{"patternProperties":{` + strings.TrimSuffix(strings.Repeat(`"a.*b.*c":{},`, 1)+`"b.*c.*d":{},"c.*d.*e":{},"d.*e.*f":{},"e.*f.*g":{},`, ",") + `}}`,
	}
}

// TestHostileSchemasAreBounded: each compiles or fails with an error of its own, in bounded time, and
// no document costs unbounded time either.
func TestHostileSchemasAreBounded(t *testing.T) {
	for name, schema := range hostile() {
		t.Run(name, func(t *testing.T) {
			g, err := jsonschema.Compile(lib, []byte(schema))
			var own *jsonschema.Error
			if err != nil {
				if !errors.As(err, &own) {
					t.Errorf("not an error of this package: %v", err)
				}
				return
			}
			walk(t, g)
			if b := g.Bytes(); b > 64<<20 {
				t.Errorf("%d bytes", b)
			}
		})
	}
}

// TestReferencesOfALargeSchemaAreNotCalledMissing: a search that would take too long says so, not that nothing has the name.
func TestReferencesOfALargeSchemaAreNotCalledMissing(t *testing.T) {
	_, err := jsonschema.Compile(lib, []byte(hostile()["anchors"]))
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v, want an error that says too large", err)
	}
}

// TestEnumsMeetByValue: numbers of two lists are the same if their values are, and the spellings of both are kept once.
func TestEnumsMeetByValue(t *testing.T) {
	g, err := jsonschema.Compile(lib, []byte(`{"type":"integer","enum":[1,2.0,0.5,3,3,4],"allOf":[{"enum":[3.0,2,1e0]},{"not":{"enum":[1.0]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"2": true, "3": true, "2.0": true, "3.0": true, "1": false, "4": false, "0.5": false} {
		if got := g.Match(text); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// walk reads the first allowed token, fifty times.
func walk(t *testing.T, g *grammar.Grammar) {
	t.Helper()
	m := g.NewMatcher([]int32{0})
	for range 50 {
		first := int32(-1)
		for i, w := range m.Mask() {
			if w != 0 {
				first = int32(i*64 + bits.TrailingZeros64(w))
				break
			}
		}
		if first < 0 || m.Over() {
			return
		}
		if err := m.Accept(first); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeywordsThatCannotBeHeldAreNamed: never a silent pass.
func TestKeywordsThatCannotBeHeldAreNamed(t *testing.T) {
	for schema, path := range map[string]string{
		`{"type":"array","uniqueItems":true}`:                                                          "uniqueItems",
		`{"properties":{"a":{"type":"string","format":"idn-email"}}}`:                                  "properties.a.format",
		`{"properties":{"a":{"type":"string","pattern":"(?<=a)b"}}}`:                                   "properties.a.pattern",
		`{"properties":{"a":{"type":"string","pattern":"(a)\\1"}}}`:                                    "properties.a.pattern",
		`{"items":{"oneOf":[{"type":"integer"},{"type":"number"}]}}`:                                   "items.oneOf",
		`{"not":{"items":{"type":"integer"}}}`:                                                         "not",
		`{"$ref":"https://x.test/a.json"}`:                                                             "$ref",
		`{"$ref":"#/$defs/none"}`:                                                                      "$ref",
		`{"$dynamicRef":"#a"}`:                                                                         "$dynamicRef",
		`{"$defs":{"x":{"$id":"https://x.test/x","$dynamicAnchor":"a"}},"items":{"$dynamicRef":"#a"}}`: "items.$dynamicRef",
		`{"properties":{"a":{"type":"string","maxLenght":3}}}`:                                         "properties.a.maxLenght",
		`{"type":"string","nullable":true}`:                                                            "nullable",
		`{"anyOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`:                            "unevaluatedProperties",
		`{"items":{},"contains":{"const":1},"maxContains":5000}`:                                       "contains",
		`{"additionalProperties":{"type":"integer"},"minProperties":3}`:                                "minProperties",
		`{"type":"strin"}`:       "type",
		`{"minLength":-1}`:       "minLength",
		`{"properties":{"a":5}}`: "properties.a",
		`{"definitions":{},"properties":{"b":{"properties":{"c":{"required":"x"}}}}}`:       "properties.b.properties.c.required",
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"$ref":"#/nope"}]}`: "items[0].$ref",
	} {
		_, err := jsonschema.Compile(lib, []byte(schema))
		var own *jsonschema.Error
		if !errors.As(err, &own) || own.Path != path {
			t.Errorf("%s: got %v, want an error at %s", schema, err, path)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object","properties":{"a":{"type":["integer","null"],"minimum":-3.5}},"required":["a","b"],"additionalProperties":{"$ref":"#"}}`,
		`{"oneOf":[{"const":1},{"enum":["a","b"]}],"not":{"type":"null"},"if":{"required":["a"]},"then":false}`,
		`{"type":"string","pattern":"^[a-z]{2,5}(?:x|y)$","minLength":3,"format":"date"}`,
		`{"prefixItems":[{},true],"items":false,"contains":{"const":1},"minItems":2,"uniqueItems":true}`,
		`{"patternProperties":{"^x":{}},"propertyNames":{"maxLength":3},"minProperties":1,"maxProperties":2,"dependentRequired":{"a":["b"]}}`,
		`{"$defs":{"a":{"$anchor":"q","multipleOf":0.25}},"allOf":[{"$ref":"#q"},{"$ref":"#/$defs/a"}],"unevaluatedProperties":false}`,
	} {
		f.Add(seed, `{"a":1}`)
	}
	f.Fuzz(func(t *testing.T, schema, doc string) {
		g, err := jsonschema.Compile(lib, []byte(schema))
		if err != nil {
			var own *jsonschema.Error
			if !errors.As(err, &own) {
				t.Errorf("not an error of this package: %v", err)
			}
			return
		}
		g.Match(doc)
		g.NewMatcher(nil).Mask()
	})
}
