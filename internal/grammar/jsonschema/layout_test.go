package jsonschema_test

import (
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
)

// TestLongTextsBetweenTagsAreCounted: a string that is written as it is may have any limit of length,
// which took an automaton with a state for each character.
func TestLongTextsBetweenTagsAreCounted(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":100000},"b":{"type":["string","null"],"maxLength":4},
		"c":{"type":"string","pattern":"^x+$","maxLength":3000}},"additionalProperties":false}`
	b := grammar.NewBuilder(lib)
	l := &jsonschema.Layout{Kind: jsonschema.Tags, First: "<", Next: "<", Equals: ">", EqualsText: ">", End: "</p>", Stop: "</p>"}
	l.Marker = func(text string, next grammar.Pos) grammar.Pos { return b.Literal(text, next) }
	at, err := jsonschema.AppendLaidOut(b, []byte(schema), l, grammar.Return)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Grammar(at)
	if err != nil {
		t.Fatal(err)
	}
	if g.Bytes() > 1<<16 {
		t.Errorf("the grammar has %d bytes", g.Bytes())
	}
	for text, want := range map[string]bool{
		"": true, "<a>xy</p>": true, "<a>ä€</p>": true, "<a>x</p>": false, "<a>" + strings.Repeat("😀", 100000) + "</p>": true,
		"<a>" + strings.Repeat("x", 100001) + "</p>": false, "<a>a</p>b</p>": false, "<a><</</p</p>": true,
		"<b>null</p>": true, "<b>None</p>": true, "<b>nul</p>": true, "<b>nulls</p>": false, "<b></p>": true, "<b> null</p>": false,
		"<c>xx</p>": true, "<c></p>": false, "<c>" + strings.Repeat("x", 3001) + "</p>": false, "<a>xy</p><c>x</p>": true,
	} {
		if g.Match(text) != want {
			t.Errorf("%.40q: %t, want %t", text, !want, want)
		}
	}
}
