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
// messages and not the second is no notation.
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
