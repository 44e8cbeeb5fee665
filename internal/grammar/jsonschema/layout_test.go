package jsonschema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/layout"
)

// TestLongTextsBetweenTagsAreCounted: a string that is written as it is may have any limit of length,
// which took an automaton with a state for each character.
func TestLongTextsBetweenTagsAreCounted(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":100000},"b":{"type":["string","null"],"maxLength":4},
		"c":{"type":"string","pattern":"^x+$","maxLength":3000}},"additionalProperties":false}`
	b := grammar.NewBuilder(lib)
	l := &jsonschema.Layout{Object: layout.Object{Kind: layout.Tags, First: "<", Next: "<", Equals: ">", EqualsText: ">", End: "</p>", Stop: "</p>"}}
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

// laid is the grammar of the objects of a schema in a layout.
func laid(t *testing.T, schema string, l *jsonschema.Layout) *grammar.Grammar {
	t.Helper()
	b := grammar.NewBuilder(lib)
	l.Marker = func(text string, next grammar.Pos) grammar.Pos { return b.Literal(text, next) }
	at, err := jsonschema.AppendLaidOut(b, []byte(schema), l, grammar.Return)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Grammar(at)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// matches compares the texts that a grammar matches.
func matches(t *testing.T, g *grammar.Grammar, want map[string]bool) {
	t.Helper()
	for text, want := range want {
		if g.Match(text) != want {
			t.Errorf("%.40q: %t, want %t", text, !want, want)
		}
	}
}

// TestPlainValuesEndWhereTheyLookLikeEnding: a text has no place at which its reader takes it to end.
func TestPlainValuesEndWhereTheyLookLikeEnding(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"string"}},"c":{"type":"integer"}}}`
	names := []string{"a", "b", "c"}
	lines := laid(t, schema, &jsonschema.Layout{Names: names, Object: layout.Object{Kind: layout.Tags, First: "\n", Next: "\n", Equals: ": ", EqualsText: ": ",
		Plain: layout.Plain{Next: "\n", Key: ":", Ends: []string{"</call>"}, Lines: []string{"## "}}}})
	matches(t, lines, map[string]bool{
		"": true, "\na: x": true, "\na: x\nc: 7": true, "\na: two\nlines, d: of text": true, "\na: x\nb: y": false, "\na: x\n \tc: y": false, "\na: x\nc : y": true,
		"\na: x</call>": false, "\na: x\n  ## y": false, "\na: x ## y": true, "\na: x ": false, "\na: x\n": false, "\na: ": true, "\nd: 1": false,
		"\nb: [\"x\\nc: 1\"]": true, "\nb: [\"</call>\"]": false, "\na: x\nb: []\nc: -1": true,
	})
	commas := laid(t, schema, &jsonschema.Layout{Names: names, Object: layout.Object{Kind: layout.Tags, First: "(", Next: ", ", Empty: "(", Equals: "=", EqualsText: "=",
		Plain: layout.Plain{Next: ",", Key: "=", Ends: []string{"}}"}}}})
	matches(t, commas, map[string]bool{
		"(": true, "(a=x, y, c=7": true, "(a=x, y, d=1": true, "(a=x,c=y": false, "(a=x}}": false, "(b=[\"x\"]": true, "(b=[\"x}}\"]": false,
	})
	open := laid(t, `{"type":"object","additionalProperties":{"type":"string"}}`, &jsonschema.Layout{Object: layout.Object{Kind: layout.Tags, First: " ", Next: " ", Equals: "=", EqualsText: "=",
		Plain: layout.Plain{Next: " ", Key: "=", Ends: []string{"<end>"}}}})
	matches(t, open, map[string]bool{" any=thing x=y": true, " any=thing x y": true, " any=thing x=": true, " any=a  b": true, " any=a b=c=d": true, " any=<end>": false})
}

// TestElementsAreCalledLikeTheirKeys: an element ends with its own key, and only listed names can be written.
func TestElementsAreCalledLikeTheirKeys(t *testing.T) {
	g := laid(t, `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"object","additionalProperties":{"type":"string"}}},"additionalProperties":true}`,
		&jsonschema.Layout{Object: layout.Object{Kind: layout.Tags, First: "<", Next: "\n<", Equals: ">", EqualsText: ">", End: "</\x01>", Stop: "</\x01>"}})
	matches(t, g, map[string]bool{
		"": true, "<a>x</a>": true, "<a>x</b></a>": true, "<a>x</b>": false, "<a></a></a>": false, "<a>x</a>\n<b>{\"k\":\"v\"}</b>": true,
		"<b>{\"k\":\"</b>\"}</b>": false, "<c>x</c>": false,
	})
}

// TestAPartOfAGrammarInAString: a quoted part reads JSON as it is in a string of JSON.
func TestAPartOfAGrammarInAString(t *testing.T) {
	b := grammar.NewBuilder(lib)
	after := b.Literal(`"}`, grammar.Return)
	at, err := b.Quoted(func() (grammar.Pos, error) {
		return jsonschema.AppendObject(b, []byte(`{"type":"object","properties":{"a":{"type":"string","maxLength":6},"b":{"enum":["x","\\",7]}},"required":["a"],"additionalProperties":false}`), after)
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Grammar(b.Literal(`{"arguments": "`, at))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for arguments, want := range map[string]bool{`{"a":"x"}`: true, `{"a": "q\"\\é\n", "b": "\\"}`: true, `{"a":"","b":7}`: true, `{"b":7}`: false, `{"a":"1234567"}`: false, `{"a":7}`: false} {
		text, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		texts[`{"arguments": `+string(text)+"}"] = want
	}
	texts[`{"arguments": "{"a":"x"}"}`] = false
	texts[`{"arguments": "{\"a\":\"x\"}}"}`] = false
	matches(t, g, texts)
}

// TestLargePatternsInUnquotedArgumentsWereRejected: between tags, a pattern whose automaton is large was
// a 400.
func TestLargePatternsInUnquotedArgumentsWereRejected(t *testing.T) {
	const schema = `{"type":"object","properties":{"url":{"type":"string","pattern":"^https?://\\S{1,2000}$","maxLength":40},
		"list":{"type":"array","items":{"type":"string","pattern":"^\\S{1,64}@\\S{1,255}$"}}},
		"patternProperties":{"^x-\\S{1,3000}$":{"const":"y"}},"additionalProperties":false}`
	tags := layout.Object{Kind: layout.Tags, First: "<", Next: "<", Equals: ">", EqualsText: ">", End: "</p>", Stop: "</p>"}
	matches(t, laid(t, schema, &jsonschema.Layout{Object: tags}), map[string]bool{
		"": true, "<url>http://x</p>": true, "<url>http://</</p": false, "<url>http://</</p></p>": false, "<url>http://x</q></p>": true,
		"<url>http://" + strings.Repeat("é", 33) + "</p>": true, "<url>http://" + strings.Repeat("é", 34) + "</p>": false,
		`<list>["a@b","a</q@b"]</p>`: true, `<list>["a</p>@b"]</p>`: false, `<list>["ab"]</p>`: false,
	})
	bare := layout.Object{Kind: layout.Bare, Quote: "'", First: "", Next: ",", Equals: ":", EqualsText: ":"}
	matches(t, laid(t, schema, &jsonschema.Layout{Object: bare}), map[string]bool{
		"url:'http://x'": true, "url:'http:// x'": false, "url:'http://x'y'": false, "list:['a@b']": true, "list:['b']": false,
	})
}

// TestLargePatternsInQuotedArgumentsWereRejected: arguments that are JSON in a string of JSON.
func TestLargePatternsInQuotedArgumentsWereRejected(t *testing.T) {
	b := grammar.NewBuilder(lib)
	after := b.Literal(`"`, grammar.Return)
	at, err := b.Quoted(func() (grammar.Pos, error) {
		return jsonschema.AppendObject(b, []byte(`{"type":"object","properties":{"a":{"type":"string","pattern":"^\\S{1,64}@\\S{1,255}$","maxLength":20},
			"b":{"enum":["\"@x","y"],"allOf":[{"type":"string","pattern":"^\\S{1,64}@\\S{1,255}$","maxLength":20}]}},"additionalProperties":false}`), after)
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Grammar(b.Literal(`"`, at))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for arguments, want := range map[string]bool{`{"a":"x@y"}`: true, `{"a":"\"\\@é"}`: true, `{"a":"x@"}`: false, `{"a":"x@12345678901234567890"}`: false,
		`{"a":"x@\t"}`: false, `{"b":"\"@x"}`: true, `{"b":"y"}`: false} {
		text, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		texts[string(text)] = want
	}
	texts[`"{\"a\":\"x"@y\"}"`] = false
	matches(t, g, texts)
}
