package chat

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustParse(t testing.TB, source string) *Template {
	t.Helper()
	template, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func mustDecode(t testing.TB, s string) Value {
	t.Helper()
	v, err := Decode([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// messagesOf decodes an array of messages.
func messagesOf(t testing.TB, s string) []Value { return mustDecode(t, s).(*List).Items }

// TestVariablesOfTheTemplate prints the variables of a request as the template
// receives them.
func TestVariablesOfTheTemplate(t *testing.T) {
	for _, c := range []struct {
		name     string
		template string
		request  Request
		messages string
		want     string
	}{
		{name: "null fields are dropped", template: "{{ messages }}",
			messages: `[{"role":"user","content":null,"z":1,"a":2}]`, want: "[{'role': 'user', 'z': 1, 'a': 2}]"},
		{name: "nested nulls stay", template: "{{ messages[0].x }}",
			messages: `[{"role":"user","x":{"y":null}}]`, want: "{'y': None}"},
		{name: "reasoning_content fills thinking", template: "{{ messages }}",
			messages: `[{"role":"a","reasoning_content":"r"}]`, want: "[{'thinking': 'r', 'role': 'a', 'reasoning_content': 'r'}]"},
		{name: "thinking fills reasoning_content", template: "{{ messages }}",
			messages: `[{"role":"a","thinking":"t"}]`, want: "[{'thinking': 't', 'role': 'a', 'reasoning_content': 't'}]"},
		{name: "reasoning fills both", template: "{{ messages }}",
			messages: `[{"role":"a","reasoning":"x","thinking":null}]`, want: "[{'thinking': 'x', 'role': 'a', 'reasoning': 'x', 'reasoning_content': 'x'}]"},
		{name: "tools and documents are none", template: "{{ tools is none }} {{ documents is none }} {{ tools is defined }}", want: "True True True"},
		{name: "empty tools stay", template: "{{ tools }}", request: Request{Tools: NewList()}, want: "[]"},
		{name: "special tokens", template: "{{ bos_token }}{{ eos_token is defined }}",
			request: Request{SpecialTokens: map[string]string{"bos_token": "<s>"}}, want: "<s>False"},
		{name: "kwargs win over special tokens", template: "{{ bos_token }}",
			request: Request{SpecialTokens: map[string]string{"bos_token": "<s>"}, Kwargs: NewDict("bos_token", "!")}, want: "!"},
		{name: "numbers keep their type", template: "{{ messages[0].n }}",
			messages: `[{"role":"u","n":[1,1.0,1e2,123456789012345678901]}]`, want: "[1, 1.0, 100.0, 123456789012345678901]"},
		{name: "now", template: "{{ strftime_now('%d %B %Y') }}",
			request: Request{Now: time.Date(2031, 7, 4, 0, 0, 0, 0, time.UTC)}, want: "04 July 2031"},
		{name: "generation prompt", template: "{{ add_generation_prompt }}", request: Request{AddGenerationPrompt: true}, want: "True"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.request
			if c.messages == "" {
				c.messages = `[{"role":"user","content":"hi"}]`
			}
			r.Messages = messagesOf(t, c.messages)
			got, err := mustParse(t, c.template).Render(r)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}

func TestContinueFinalMessage(t *testing.T) {
	plain := "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
	trimmed := "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</{{ m.role }}>\n{% endfor %}"
	for _, c := range []struct{ name, template, messages, field, want, fails string }{
		{name: "space is kept", template: plain, messages: `[{"role":"a","content":"One, "}]`, want: "<a>One, "},
		{name: "template trims", template: trimmed, messages: `[{"role":"a","content":"One, "}]`, want: "<a>One,"},
		{name: "last part with text", template: "{% for p in messages[0].content %}{{ p.text or '@' }};{% endfor %}",
			messages: `[{"role":"a","content":[{"text":"x"},{"text":"y"},{"image":1}]}]`, want: "x;y"},
		{name: "reasoning under the name the template reads", template: "{{ messages[0].thinking }}.",
			messages: `[{"role":"a","reasoning":"Hm"}]`, field: "reasoning", want: "Hm"},
		{name: "no such field", template: plain, messages: `[{"role":"a","content":null}]`, fails: `has no "content" to continue`},
		{name: "field unknown to the template", template: "{{ messages[0].content }}",
			messages: `[{"role":"a","reasoning_content":"Hm"}]`, field: "reasoning_content", fails: "not an accepted field"},
		{name: "template drops it", template: "{{ messages[0].content if false }}",
			messages: `[{"role":"a","content":"One"}]`, fails: "does not appear in the chat"},
		{name: "no text in parts", template: plain, messages: `[{"role":"a","content":[{"image":1}]}]`, fails: "could not find any text"},
		{name: "content of another type", template: plain, messages: `[{"role":"a","content":{"x":1}}]`, fails: "must be text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Request{Messages: messagesOf(t, c.messages), ContinueField: "content"}
			if c.field != "" {
				r.ContinueField = c.field
			}
			got, err := mustParse(t, c.template).Render(r)
			if c.fails == "" {
				if err != nil || got != c.want {
					t.Errorf("got %q, %v\nwant %q", got, err, c.want)
				}
				return
			}
			wantError(t, err, KindValidation, c.fails)
		})
	}
}

func wantError(t *testing.T, err error, kind Kind, part string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Message, part) {
		t.Errorf("want %s with %q, got %v", kind, part, err)
	}
}

func TestRefusals(t *testing.T) {
	user := messagesOf(t, `[{"role":"user","content":"hi"}]`)
	template := mustParse(t, "ok")
	for _, c := range []struct {
		request Request
		part    string
	}{
		{Request{}, "empty conversation"},
		{Request{Messages: user, AddGenerationPrompt: true, ContinueField: "content"}, "not compatible"},
		{Request{Messages: []Value{"hi"}}, "messages[0] must be an object"},
		{Request{Messages: user, Tools: NewDict()}, "tools must be an array"},
		{Request{Messages: user, Tools: NewList("f")}, "tools[0] must be an object"},
		{Request{Messages: user, Documents: NewList(nil)}, "documents[0] must be an object"},
	} {
		_, err := template.Render(c.request)
		wantError(t, err, KindValidation, c.part)
	}
	_, err := Parse("a\n{% if %}")
	wantError(t, err, KindSyntax, "Expected an expression")
	var e *Error
	if errors.As(err, &e) && e.Line != 2 {
		t.Errorf("want line 2, got %d", e.Line)
	}
	_, err = mustParse(t, "a\nb{{ raise_exception('No ' ~ messages[0].role) }}").Render(Request{Messages: user})
	wantError(t, err, KindRaise, "No user")
	if want := "chat: template line 2: No user"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestSetKwargs(t *testing.T) {
	var r Request
	err := r.SetKwargs(mustDecode(t, `{"enable_thinking":false,"add_generation_prompt":true,"documents":[],"continue_final_message":"thinking","x":null}`).(*Dict))
	if err != nil {
		t.Fatal(err)
	}
	if !r.AddGenerationPrompt || r.ContinueField != "thinking" || r.Documents == nil || r.Kwargs.Len() != 2 {
		t.Errorf("got %+v", r)
	}
	if err := r.SetKwargs(NewDict("continue_final_message", true)); err != nil || r.ContinueField != "content" {
		t.Errorf("got %q, %v", r.ContinueField, err)
	}
	if err := r.SetKwargs(NewDict("continue_final_message", false)); err != nil || r.ContinueField != "" {
		t.Errorf("got %q, %v", r.ContinueField, err)
	}
	for _, name := range []string{"messages", "tools", "tokenize"} {
		wantError(t, r.SetKwargs(NewDict(name, nil)), KindValidation, name)
	}
	wantError(t, r.SetKwargs(NewDict("add_generation_prompt", "yes")), KindValidation, "true or false")
	wantError(t, r.SetKwargs(NewDict("continue_final_message", int64(1))), KindValidation, "name of a field")
}

func TestParseArguments(t *testing.T) {
	given := `[{"role":"assistant","tool_calls":[` +
		`{"id":"1","function":{"name":"f","arguments":"{\"z\": 1, \"a\": 1.0}"}},` +
		`{"function":{"name":"f","arguments":""}},` +
		`{"function":{"name":"f","arguments":"not json"}},` +
		`{"function":{"name":"f","arguments":"[1]"}},` +
		`{"function":{"name":"f","arguments":{"already":"parsed"}}},` +
		`{"name":"bare","arguments":"{}"}, 5]},` +
		`{"role":"assistant","function_call":{"name":"f","arguments":"{\"q\":null}"}}, "odd"]`
	messages := messagesOf(t, given)
	template := mustParse(t, "{{ all }}")
	show := func(messages []Value) string {
		got, err := template.Render(Request{Messages: messagesOf(t, `[{"role":"u"}]`), Kwargs: NewDict("all", NewList(messages...))})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := show(messages)
	got := show(ParseArguments(messages))
	want := "[{'role': 'assistant', 'tool_calls': [" +
		"{'id': '1', 'function': {'name': 'f', 'arguments': {'z': 1, 'a': 1.0}}}, " +
		"{'function': {'name': 'f', 'arguments': {}}}, " +
		"{'function': {'name': 'f', 'arguments': 'not json'}}, " +
		"{'function': {'name': 'f', 'arguments': '[1]'}}, " +
		"{'function': {'name': 'f', 'arguments': {'already': 'parsed'}}}, " +
		"{'name': 'bare', 'arguments': {}}, 5]}, " +
		"{'role': 'assistant', 'function_call': {'name': 'f', 'arguments': {'q': None}}}, 'odd']"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if after := show(messages); after != before {
		t.Errorf("the messages given have changed: %s", after)
	}
}

// TestConcurrentRender renders one request in many goroutines: neither the template
// nor the request may be written.
func TestConcurrentRender(t *testing.T) {
	template := mustParse(t, "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content|length %}"+
		"{{ m.tool_calls|tojson }}{{ m.items()|list|length }}{% endfor %}{{ ns.n }}{{ big.k7 }}")
	big := NewDict()
	for i := range 20 {
		big.Set(fmt.Sprintf("k%d", i), int64(i))
	}
	r := Request{
		Messages: messagesOf(t, `[{"role":"u","content":"hello","tool_calls":[{"a":[1,2]}],"thinking":"x"},{"role":"a","content":"One ","tool_calls":[]}]`),
		Kwargs:   NewDict("big", big),
	}
	want, err := template.Render(r)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				if got, err := template.Render(r); err != nil || got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func ExampleTemplate_Render() {
	template, err := Parse("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}" +
		"{% if add_generation_prompt %}<|assistant|>{% endif %}")
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := template.Render(Request{
		Messages:            []Value{NewDict("role", "user", "content", "Hello!")},
		AddGenerationPrompt: true,
	})
	fmt.Println(prompt, err)
	// Output:
	// <|user|>Hello!
	// <|assistant|> <nil>
}
