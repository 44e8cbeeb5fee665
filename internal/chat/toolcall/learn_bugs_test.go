package toolcall

import (
	"os"
	"strings"
	"testing"
)

// unseen is the text of a template of testdata/unseen.
func unseen(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/unseen/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// parsesTo parses text with the notation that the template teaches, and compares it with the
// calls as NAME and arguments, one a line, after the content.
func parsesTo(t *testing.T, template, text, want string) {
	t.Helper()
	family := learned(t, template)
	if family == nil {
		t.Fatal("no notation is learned")
	}
	m := family.Parse(text, Options{Tools: testTools(t)})
	got := strings.TrimSpace(m.Content)
	for _, c := range m.Calls {
		got += "\n" + c.Name + c.Arguments
	}
	if got != want {
		t.Errorf("%q gives %q, want %q", text, got, want)
	}
}

// TestSecondCallAfterEndOfTurnWasContent: each call is a message with an end of turn, the first
// after the content's. The end of turn between two calls hid the second.
func TestSecondCallAfterEndOfTurnWasContent(t *testing.T) {
	template := unseen(t, "message-per-call")
	two := "<|bot|>to=f<|sep|>{\"a\": 1}<|end|>\n<|bot|>to=g<|sep|>{}<|end|>\n"
	parsesTo(t, template, "<|end|>"+two, "\nf{\"a\": 1}\ng{}")
	parsesTo(t, template, two, "\nf{\"a\": 1}\ng{}")
	parsesTo(t, template, "Both.<|end|>"+two, "Both.\nf{\"a\": 1}\ng{}")
}

// TestNotationOfOneCallIsRefusedIfTwoDiffer: what reads one call of an answer of several
// messages and not the second is not a notation.
func TestNotationOfOneCallIsRefusedIfTwoDiffer(t *testing.T) {
	template := unseen(t, "message-per-call")
	other := strings.Replace(template, "'<|sep|>'", "('<|sep|>' if loop.first else '<|more|>')", 1)
	if other == template {
		t.Fatal("the template has changed")
	}
	if family := learned(t, other); family != nil {
		t.Errorf("%+v is learned", family.spec.forms)
	}
}

// TestClosingTagWithTheNameWasNotLearned: the end of a call has the name once more. Another
// name there ends the call, and is content.
func TestClosingTagWithTheNameWasNotLearned(t *testing.T) {
	template := unseen(t, "name-in-closing-tag")
	parsesTo(t, template, `<tool:f>{"a": 1}</tool:f><tool:g>{}</tool:g>`, "\nf{\"a\": 1}\ng{}")
	parsesTo(t, template, `<tool:f>{"a": 1}</tool:g>`, "</tool:g>\nf{\"a\": 1}")
}

// TestArgumentsInAListOfNamesAndValuesWereNotLearned: lists that break a rule are content.
func TestArgumentsInAListOfNamesAndValuesWereNotLearned(t *testing.T) {
	template := unseen(t, "name-value-list")
	call := func(list string) string { return `<|act|>{"tool": "f", "parameters": [` + list + `]}<|/act|>` }
	parsesTo(t, template, call(`{"name": "a\"", "value": [1, {"b": "]"}]}, {"name":"c" , "value":-2 }`), "\nf{\"a\\\"\": [1, {\"b\": \"]\"}], \"c\": -2}")
	parsesTo(t, template, call(``), "\nf{}")
	for _, list := range []string{
		`{"name": "a"}`, `{"value": 1, "name": "a"}`, `{"name": "a", "value": 1},`, `{"name": 1, "value": 1}`,
		`{"name": "a", "value": 1, "more": 2}`, `{"name": "a", "value": x}`, `1`,
	} {
		text := strings.TrimSuffix(call(list), "<|/act|>")
		parsesTo(t, template, text, text)
	}
}

// TestAssignedJSONValuesWereNotLearned: parameters whose values have no end but their own.
func TestAssignedJSONValuesWereNotLearned(t *testing.T) {
	parsesTo(t, unseen(t, "attributes"), `<do fn="f" a="x />" b=-7 c={"d": [1]}/><do fn="g"/>`, "\nf{\"a\": \"x />\", \"b\": -7, \"c\": {\"d\": [1]}}\ng{}")
	parsesTo(t, unseen(t, "assignments"), "<|run|>f\na := \"x\"\nb:=7<|/run|>", "\nf{\"a\": \"x\", \"b\": 7}")
	parsesTo(t, unseen(t, "keyword-colons"), `[run f(a: "x", b: 7)]`, "\nf{\"a\": \"x\", \"b\": 7}")
	for _, text := range []string{`<do fn="f" a=x/>`, `<do fn="f" ="x"/>`, `<do fn="f" a="x"`} {
		parsesTo(t, unseen(t, "attributes"), text, text)
	}
}

// TestNamesAndKeysThatRunTogetherAreRefused: fa := "x" may be a call of f or of fa.
func TestNamesAndKeysThatRunTogetherAreRefused(t *testing.T) {
	template := unseen(t, "assignments")
	other := strings.Replace(template, `'\n' ~ k`, `k`, 1)
	if other == template {
		t.Fatal("the template has changed")
	}
	if family := learned(t, other); family != nil {
		t.Errorf("%+v is learned", family.spec.forms)
	}
}

// TestNumbersBeforeNamesWereNotLearned: calls of a section are counted.
func TestNumbersBeforeNamesWereNotLearned(t *testing.T) {
	parsesTo(t, unseen(t, "counted-plan"), "Both.<|plan|>\n9. f -> {\"a\": 1}\n10. g -> {}\n<|/plan|>", "Both.\nf{\"a\": 1}\ng{}")
}

// TestNameAfterArgumentsWasNotLearned: a call without a name is content.
func TestNameAfterArgumentsWasNotLearned(t *testing.T) {
	template := unseen(t, "name-last")
	parsesTo(t, template, `Both.<|args|>{"a": 1}<|to|>f<|done|><|args|>{}<|to|>g<|done|>`, "Both.\nf{\"a\": 1}\ng{}")
	for _, text := range []string{`<|args|>{"a": 1}`, `<|args|>{"a": 1}<|to|>f`, `<|args|>{"a": 1}f<|done|>`, `<|args|>{"a": x}<|to|>f<|done|>`} {
		parsesTo(t, template, text, text)
	}
}

// TestANumberInTheOpeningTagWasNotLearned: <call 1>, <call 2>. Without a number, or with more than a
// number, the tag is content.
func TestANumberInTheOpeningTagWasNotLearned(t *testing.T) {
	template := unseen(t, "numbered-tag")
	call := func(tag, name string) string { return tag + `{"name": "` + name + `", "arguments": {"a": 1}}</call>` }
	parsesTo(t, template, call("<call 1>\n", "f")+"\n"+call("<call 12>\n", "g"), "\nf{\"a\": 1}\ng{\"a\": 1}")
	parsesTo(t, template, "See <call me> or <caller 1>.", "See <call me> or <caller 1>.")
}

// TestANumberInBothTagsWasNotLearned: <call 1> and </call 1>. A closing tag with more than a number is
// content, and one that breaks off is dropped.
func TestANumberInBothTagsWasNotLearned(t *testing.T) {
	template := unseen(t, "numbered-tags")
	const f, g = "<call 1>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n", "<call 12>{\"name\": \"g\", \"arguments\": {}}"
	parsesTo(t, template, "Both."+f+"</call 1>\n"+g+"</call 12>\n", "Both.\nf{\"a\": 1}\ng{}")
	parsesTo(t, template, f+"</call 1", "\nf{\"a\": 1}")
	parsesTo(t, template, f+"</call", "\nf{\"a\": 1}")
	parsesTo(t, template, f+"</call x>", "</call x>\nf{\"a\": 1}")
	parsesTo(t, template, "See <call me> and </call 1>.", "See <call me> and </call 1>.")
}

// TestListsOfParametersWithJSONValuesWereNotLearned: Markdown, options of a command, keywords. The
// name ends a call without arguments, too.
func TestListsOfParametersWithJSONValuesWereNotLearned(t *testing.T) {
	parsesTo(t, unseen(t, "markdown-list-json"), "Now.\n**Tool call:** `f`\n- a: \"x, \\\"y\\\"\"\n- b: [1, 2]\n**End of call**\n", "Now.\nf{\"a\": \"x, \\\"y\\\"\", \"b\": [1, 2]}")
	parsesTo(t, unseen(t, "markdown-list-ticks"), "### Call `f`\n- `a`: `7`\n- `b`: `x y`\n---\n", "\nf{\"a\": 7, \"b\": \"x y\"}")
	parsesTo(t, unseen(t, "command-line"), `<run>f --a "x --b" --b 7</run><run>g</run>`, "\nf{\"a\": \"x --b\", \"b\": 7}\ng{}")
	parsesTo(t, unseen(t, "sexpr"), "(call f :a \"(x)\" :b {\"c\": null})\n(call g)\n", "\nf{\"a\": \"(x)\", \"b\": {\"c\": null}}\ng{}")
}

// TestCallsInCodeFencesWereNotLearned: the fence that ends a call was taken for one around its
// arguments, with the opening of the next call.
func TestCallsInCodeFencesWereNotLearned(t *testing.T) {
	template := unseen(t, "code-fence")
	parsesTo(t, template, "Both.\n```tool\nf\n{\"a\": \"```\"}\n```\n```tool\ng\n{}\n```\n", "Both.\nf{\"a\": \"```\"}\ng{}")
	parsesTo(t, template, "See:\n```go\nf()\n```\n", "See:\n```go\nf()\n```")
}

// TestUnquotedValuesWereNotLearned: YAML, Markdown and KEY=VALUE without quotes. A value ends where
// another parameter of the function or the end of the call begins, and nowhere else.
func TestUnquotedValuesWereNotLearned(t *testing.T) {
	for _, c := range []struct{ template, text, want string }{
		{"yaml-plain", "Now.<tool_call>\nname: f\narguments:\n  s: St. John's: \"here\"\n  n: 7\n</tool_call>\n<tool_call>\nname: g\narguments:\n</tool_call>\n",
			"Now.\nf{\"s\": \"St. John's: \\\"here\\\"\", \"n\": 7}\ng{}"},
		{"yaml-plain", "<tool_call>\nname: f\narguments:\n  s: a\n  x: c\n\n  n: 1\n</tool_call>", "\nf{\"s\": \"a\\n  x: c\\n\", \"n\": 1}"},
		{"markdown-list-plain", "**Tool call:** `f`\n- s: a - b\n- n: 2\n**End of call**\n", "\nf{\"s\": \"a - b\", \"n\": 2}"},
		{"glued-plain", "<call>f:s=Rome;Italy=1;n=3</call><call>g:</call>", "\nf{\"s\": \"Rome;Italy=1\", \"n\": 3}\ng{}"},
		{"commas-plain", "<|run|>f(s=Rome, Italy (IT), n=3)<|ran|>", "\nf{\"s\": \"Rome, Italy (IT)\", \"n\": 3}"},
		{"spaces-plain", "<|run|>f s=New York n=3<|ran|>", "\nf{\"s\": \"New York\", \"n\": 3}"},
	} {
		t.Run(c.template, func(t *testing.T) { parsesTo(t, unseen(t, c.template), c.text, c.want) })
	}
}

// TestUnquotedValuesWithoutAnEndAreNotLearned: a value may have a bracket, so a bracket does not end
// the call. A name that runs into the first key is not told from it.
func TestUnquotedValuesWithoutAnEndAreNotLearned(t *testing.T) {
	for template, change := range map[string][2]string{
		"commas-plain": {"')<|ran|>'", "')'"},
		"glued-plain":  {"f.name + ':'", "f.name"},
	} {
		other := strings.Replace(unseen(t, template), change[0], change[1], 1)
		if other == unseen(t, template) {
			t.Fatalf("%s has changed", template)
		}
		if family := learned(t, other); family != nil {
			t.Errorf("%s: %+v is learned", template, family.spec.forms)
		}
	}
}

// TestSentencesWereNotLearned: calls whose end is a period. A period behind a number ends the call unless a digit
// follows, whatever way the text is cut; the last one of an answer does.
func TestSentencesWereNotLearned(t *testing.T) {
	for _, c := range []struct{ template, text, want string }{
		{"sentence-json", "Now.\nCall f with s = \"a. b\", n = 7.5.\nCall g with x = true.\n", "Now.\nf{\"s\": \"a. b\", \"n\": 7.5}\ng{\"x\": true}"},
		{"sentence-json", "Call f with n = -7.", "\nf{\"n\": -7}"},
		{"sentence-and", "Call f with n set to 7. Done.", "Done.\nf{\"n\": 7}"},
		{"sentence-and", "Call f with a set to [1.5, {\"k\": 2.0}] and b set to null.\n", "\nf{\"a\": [1.5, {\"k\": 2.0}], \"b\": null}"},
		{"sentence-where", "<|act|>Use f where s is \"x\"; n is 1e3.<|act|>Use g where .", "\nf{\"s\": \"x\", \"n\": 1e3}\ng{}"},
		{"line-of-a-period", "Now.\n@f\ns: St. John's.\nn: 7\n.\n@g\n.\n", "Now.\nf{\"s\": \"St. John's.\", \"n\": 7}\ng{}"},
		{"line-of-a-period", "@f\ns: a\n.5 b\n...\nn: 2\n.", "\nf{\"s\": \"a\\n.5 b\\n...\", \"n\": 2}"},
	} {
		parsesTo(t, unseen(t, c.template), c.text, c.want)
		family := learned(t, unseen(t, c.template))
		for i := range len(c.text) + 1 {
			p, got := family.NewParser(Options{Tools: testTools(t)}), ""
			for _, piece := range []func() []Event{func() []Event { return p.Feed(c.text[:i]) }, func() []Event { return p.Feed(c.text[i:]) }, p.Finish} {
				for _, e := range piece() {
					if e.Broken {
						t.Errorf("%q cut at %d is broken", c.text, i)
					}
					if e.Kind == CallStart {
						got += "\n" + e.Name
					} else if e.Kind == CallArguments {
						got += e.Text
					}
				}
			}
			if _, want, _ := strings.Cut(c.want, "\n"); got != "\n"+want {
				t.Errorf("%q cut at %d gives %q, want %q", c.text, i, got, want)
			}
		}
	}
}

// TestValuesBeforeTheirKeysWereNotLearned: a value ends where a parameter of the function follows it. Text that looks
// like another key is a part of it.
func TestValuesBeforeTheirKeysWereNotLearned(t *testing.T) {
	for _, c := range []struct{ template, text, want string }{
		{"value-first-json", "Now.\n<call f>\n\"a -> s\" -> s\n[1, {\"k\": 2}] -> n\n</call>\n<call g>\n</call>", "Now.\nf{\"s\": \"a -> s\", \"n\": [1, {\"k\": 2}]}\ng{}"},
		{"value-first-set", "<call f>\n<set>a <as>zz</set> b<as>s</set>\n<set>7<as>n</set>\n</call>", "\nf{\"s\": \"a <as>zz</set> b\", \"n\": 7}"},
		{"value-first-elements", "<invoke tool=\"f\">\n<value>two\nlines</value><name>s</name>\n</invoke>", "\nf{\"s\": \"two\\nlines\"}"},
		{"value-first-row", "<|run|>f: \"7 to s; 8\" to s; 2 to n; <|ran|>", "\nf{\"s\": \"7 to s; 8\", \"n\": 2}"},
		{"value-first-list", "<call f>\n- 7 => s\n- 7 => n\n</call>", "\nf{\"s\": \"7\", \"n\": 7}"},
		{"value-first-set", "<call f>\n<set>a</set>\n</call>", "<call f>\n<set>a</set>\n</call>"},
	} {
		parsesTo(t, unseen(t, c.template), c.text, c.want)
	}
}
