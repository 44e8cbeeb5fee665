package jsonschema_test

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar/jsonschema"
)

// TestItemsBesideContainsHadNoComma: without a limit of items, items that contains counts stood side by
// side.
func TestItemsBesideContainsHadNoComma(t *testing.T) {
	g, err := jsonschema.Compile(lib, []byte(`{"type":"array","items":{"enum":[1,2]},"contains":{"const":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	for doc, want := range map[string]bool{"[1]": true, "[2,1]": true, "[2, 1, 2]": true, "[2]": false, "[2 1]": false, "[21]": false} {
		if g.Match(doc) != want {
			t.Errorf("%s: %t, want %t", doc, !want, want)
		}
	}
}

// TestCountedItemsAndDynamicReferences: several contains, maxContains, unique items of more values and
// references that name a place of the only resource were a 400 each.
func TestCountedItemsAndDynamicReferences(t *testing.T) {
	for _, c := range []struct {
		schema         string
		valid, invalid []string
	}{
		{`{"type":"array","items":{"enum":[1,2,3,"a"]},"contains":{"type":"integer"},"minContains":2,"maxContains":3}`,
			[]string{`[1,2]`, `["a",1,"a",2,3]`, `[1,1,1]`}, []string{`[]`, `[1]`, `["a","a",1]`, `[1,2,3,1]`, `["a",1,2,"a",3,3]`}},
		{`{"type":"array","allOf":[{"contains":{"const":1}},{"contains":{"const":2},"maxContains":1},{"contains":{"enum":[2,3]},"minContains":2}],"items":{"enum":[1,2,3]}}`,
			[]string{`[1,2,3]`, `[3,1,1,2,3]`}, []string{`[3,3,1]`, `[1,2]`, `[2,3]`, `[1,2,2]`, `[1,3]`, `[]`}},
		{`{"type":"array","items":{"enum":[1,2]},"contains":{"const":1},"minContains":0,"maxContains":0}`,
			[]string{`[]`, `[2,2]`}, []string{`[1]`, `[2,1]`}},
		{`{"type":"array","items":{"enum":[1,2]},"contains":{"const":1},"minContains":2,"maxContains":1,"maxItems":4,"minItems":0}`,
			nil, []string{`[1]`, `[1,1]`}},
		{`{"type":"array","uniqueItems":true,"items":{"enum":["a","b","c","d","e","f","g","h","i","j","k"]},"minItems":1}`,
			[]string{`["k","a"]`, `["a","b","c","d","e","f","g","h","i","j","k"]`}, []string{`[]`, `["a","b","a"]`}},
		{`{"type":"array","uniqueItems":true,"maxItems":2,"items":{"enum":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,true,null,"x"]}}`,
			[]string{`[20,"x"]`, `[null]`, `[]`}, []string{`[3,3]`, `[1,2,3]`, `[null,null]`}},
		{`{"$dynamicAnchor":"node","type":"object","properties":{"kids":{"type":"array","items":{"$dynamicRef":"#node"}}},"additionalProperties":false}`,
			[]string{`{"kids":[{},{"kids":[{}]}]}`, `{}`}, []string{`{"kids":[1]}`, `{"kids":[{"kids":2}]}`}},
		{`{"$recursiveAnchor":true,"type":["array","null"],"items":{"$recursiveRef":"#"}}`, []string{`[[],null]`}, []string{`[1]`}},
		{`{"type":"string","title":"t","x-order":3,"examples":[1],"nullable":false}`, []string{`"a"`}, []string{`1`}},
	} {
		g, err := jsonschema.Compile(lib, []byte(c.schema))
		if err != nil {
			if c.valid != nil {
				t.Errorf("%s: %v", c.schema, err)
			}
			continue
		}
		for _, doc := range c.valid {
			if !g.Match(doc) {
				t.Errorf("%s rejects %s", c.schema, doc)
			}
		}
		for _, doc := range c.invalid {
			if g.Match(doc) {
				t.Errorf("%s accepts %s", c.schema, doc)
			}
		}
	}
}

// TestPatternsThatRepeatAClassManyTimesWereTooLarge: an automaton had a copy of the class for each
// repetition, so that ^.{1,500}$, and a pattern together with minLength and maxLength, were a 400.
func TestPatternsThatRepeatAClassManyTimesWereTooLarge(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	for _, c := range []struct {
		schema         string
		valid, invalid []string
	}{
		{`{"type":"string","pattern":"^.{1,500}$"}`, []string{`"a"`, long(500), `"\t\""`}, []string{`""`, long(501), `"a\nb"`}},
		{`{"type":"string","pattern":"^[\\p{L} .'-]{2,100}$"}`, []string{`"Zoë"`, long(100)}, []string{`"Z"`, `"Z1"`, long(101)}},
		{`{"type":"string","pattern":"^\\p{Lu}[\\p{L} '-]{0,49}$","maxLength":20}`, []string{`"É"`, `"Ab"`}, []string{`""`, `"é"`, `"A` + long(20)[1:]}},
		{`{"type":"string","pattern":"^(?!x)[^<>]{3,1000}$"}`, []string{`"abc"`, long(1000)}, []string{`"ab"`, `"xbc"`, long(1001)}},
		{`{"type":"string","pattern":"^.{3,50}\\.pdf$"}`, []string{`"abc.pdf"`, `"a.pdf.pdf"`}, []string{`"ab.pdf"`, `"abc.pd"`}},
		{`{"type":"string","pattern":"^[a-z]{20}[0-9]{2,}$"}`, []string{`"abcdefghijklmnopqrst12"`, `"abcdefghijklmnopqrst123"`}, []string{`"abcdefghijklmnopqrst1"`, `"abcdefghijklmnopqrs12"`, `"abcdefghijklmnopqrstu12"`}},
		{`{"type":"string","pattern":"^[a-z]{2,40}[0-9]$"}`, []string{`"ab1"`}, []string{`"a1"`, `"ab12"`, `"ab"`}},
		{`{"type":"string","pattern":"^[^\\s@]{64}@$","minLength":66}`, nil, nil},
		{`{"type":"string","pattern":"^abc","maxLength":2}`, nil, nil},
		{`{"type":"string","pattern":"^\\S","minLength":2,"maxLength":5000}`, []string{`"ab"`, long(5000)}, []string{`"a"`, `" ab"`, long(5001)}},
		{`{"type":"string","pattern":"^a+b$","minLength":4,"maxLength":90}`, []string{`"aaab"`}, []string{`"aab"`, `"aaaa"`}},
		{`{"type":"string","pattern":"^(a|bb)$","minLength":2}`, []string{`"bb"`}, []string{`"a"`}},
		{`{"type":"object","propertyNames":{"pattern":"^[a-z]{1,40}$"},"additionalProperties":{"const":1}}`, []string{`{"ab":1}`}, []string{`{"A":1}`, `{"":1}`}},
	} {
		g, err := jsonschema.Compile(lib, []byte(c.schema))
		if (err != nil) != (c.valid == nil) {
			t.Errorf("%s: %v", c.schema, err)
		}
		if err != nil {
			continue
		}
		for _, doc := range c.valid {
			if !g.Match(doc) {
				t.Errorf("%s rejects %s", c.schema, doc)
			}
		}
		for _, doc := range c.invalid {
			if g.Match(doc) {
				t.Errorf("%s accepts %s", c.schema, doc)
			}
		}
	}
}
