package text

import (
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/chat/toolcall"
	"github.com/heftai/heft/loader/demo"
)

// echo prints the messages that a template sees.
func echo(t *testing.T, template string) *Chat {
	t.Helper()
	c, err := ReadChat(fstest.MapFS{"chat_template.jinja": {Data: []byte(template)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRender(t *testing.T) {
	call := ToolCall{ID: "c1", Name: "f", Arguments: `{"z": 1, "a": [2]}`}
	for _, c := range []struct {
		name, template string
		conv           Conversation
		want           string
	}{
		{"fields in order", "{{ messages }}", Conversation{Messages: []Message{User("hi"), {Role: "assistant", Reasoning: "hm"}}},
			"[{'role': 'user', 'content': 'hi'}, {'thinking': 'hm', 'role': 'assistant', 'content': '', 'reasoning_content': 'hm'}]"},
		{"calls have objects for arguments", "{{ messages[0].tool_calls }}{{ messages[1].tool_call_id }}{{ messages[1].name }}",
			Conversation{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{call}}, ToolResult(call, "ok")}},
			"[{'id': 'c1', 'type': 'function', 'function': {'name': 'f', 'arguments': {'z': 1, 'a': [2]}}}]c1f"},
		{"no tools are none", "{{ tools is none }}", Conversation{Messages: []Message{User("")}}, "True"},
		{"tools", "{{ tools }}", Conversation{Messages: []Message{User("")}, Tools: []Tool{{Name: "f", Parameters: json.RawMessage(`{"b":1,"a":2}`)}}},
			"[{'type': 'function', 'function': {'name': 'f', 'parameters': {'b': 1, 'a': 2}}}]"},
		{"arguments", "{{ enable_thinking }} {{ more.x }}", Conversation{Messages: []Message{User("")},
			Arguments: map[string]any{"enable_thinking": false, "more": map[string]int{"x": 1}}}, "False 1"},
		{"documents", "{{ documents }}", Conversation{Messages: []Message{User("")}, Documents: []any{map[string]string{"text": "t"}}}, "[{'text': 't'}]"},
		{"continued", "<{{ messages[0].content }}>", Conversation{Messages: []Message{Assistant("One, ")}, ContinueFinalMessage: "content"}, "<One, "},
		{"generation prompt", "{{ add_generation_prompt }}", Conversation{Messages: []Message{User("")}, AddGenerationPrompt: true}, "True"},
	} {
		got, err := echo(t, c.template).Render(c.conv)
		if err != nil || got != c.want {
			t.Errorf("%s: got %s, %v\nwant %s", c.name, got, err, c.want)
		}
	}
}

// TestUnknownFieldsReachTheTemplate: other fields of a client's JSON than the known ones, and parts of
// text where the template knows none.
func TestUnknownFieldsReachTheTemplate(t *testing.T) {
	m, err := MessageOf(json.RawMessage(`{"role":"user","x":{"y":1},"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := echo(t, "{{ messages[0].x }}{{ messages[0].content }}").Render(Conversation{Messages: []Message{m}})
	if want := "{'y': 1}a\nb"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	m.Content, m.Role = "new", "system"
	got, err = echo(t, "{{ messages[0] }}").Render(Conversation{Messages: []Message{m}})
	if want := "{'role': 'system', 'x': {'y': 1}, 'content': 'new'}"; err != nil || got != want {
		t.Errorf("changed fields: got %s, %v, want %s", got, err, want)
	}
}

func TestJSONOfMessages(t *testing.T) {
	for _, text := range []string{
		`{"role":"user","content":"hi"}`,
		`{"content":null,"role":"assistant","extra":[1,2.5,true,{"k":"<&>"}],"big":123456789012345678901}`,
	} {
		var m Message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		b, err := m.MarshalJSON()
		var got, want any
		if json.Unmarshal(b, &got) != nil || json.Unmarshal([]byte(text), &want) != nil || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %s, %v, want %s", b, err, text)
		}
	}
	b, err := json.Marshal(Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}})
	want := `{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v", b, err)
	}
	var tool Tool
	if err := json.Unmarshal([]byte(`{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"a":1}}}`), &tool); err != nil ||
		tool.Name != "f" || tool.Description != "d" || string(tool.Parameters) != `{"a":1}` {
		t.Errorf("got %+v, %v", tool, err)
	}
	for _, bad := range []string{`[]`, `"x"`, `{`} {
		if err := new(Message).UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("%s is a message", bad)
		}
	}
}

func TestErrors(t *testing.T) {
	tokenizer, chat, err := OpenFS(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no tokenizer: %v", err)
	}
	var many *TooManyTokensError
	if _, err := tokenizer.Encode(strings.Repeat("word ", 100), EncodeOptions{MaxTokens: 10}); !errors.As(err, &many) || many.Max != 10 {
		t.Errorf("too many: %v", err)
	}
	var template *TemplateError
	if _, err := chat.Render(Conversation{Messages: []Message{{Role: "parrot"}}}); !errors.As(err, &template) || !strings.Contains(template.Message, "not parrot") {
		t.Errorf("rejected: %v", err)
	}
	if _, err := echo(t, "{% if %}").Render(Conversation{Messages: []Message{User("")}}); !errors.As(err, &template) || template.Line != 1 {
		t.Errorf("does not parse: %v", err)
	}
	none, err := ReadChat(fstest.MapFS{}, nil)
	if err != nil || none.HasTemplate() {
		t.Fatalf("no files: %v", err)
	}
	if _, err := none.Render(Conversation{Messages: []Message{User("")}}); !errors.As(err, &template) {
		t.Errorf("no template: %v", err)
	}
	for _, names := range [][2]string{{"nonsense", ""}, {"", "nonsense"}, {"none", ""}} {
		if err := CheckParsers(names[0], names[1]); err == nil || !strings.Contains(err.Error(), "want one of apertus") {
			t.Errorf("%q: %v", names, err)
		}
	}
	if err := errors.Join(CheckParsers("", ""), CheckParsers("hermes", NoReasoning), CheckParsers("qwen3_coder", "deepseek_r1")); err != nil {
		t.Error(err)
	}
	if _, err := chat.WithParsers("nonsense", ""); err == nil {
		t.Error("an unknown parser is taken")
	}
	if _, err := chat.Render(Conversation{Messages: []Message{User("")}, Tools: []Tool{{Name: "f", Parameters: json.RawMessage("{")}}}); err == nil {
		t.Error("parameters that are no JSON are taken")
	}
}

// TestParserResultsDoNotDependOnChunks: for any chunks of an answer, the parser returns what Parse returns.
func TestParserResultsDoNotDependOnChunks(t *testing.T) {
	chat, err := echo(t, "x").WithParsers("hermes", "")
	if err != nil {
		t.Fatal(err)
	}
	o := ParseOptions{Tools: []Tool{{Name: "f"}}}
	const answer = `Yes. <tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>`
	want := chat.Parse(answer, o)
	if len(want.ToolCalls) != 1 || want.ToolCalls[0].ID == "" || want.Content != "Yes." {
		t.Fatalf("got %+v", want)
	}
	for size := 1; size < len(answer); size += 5 {
		p := chat.NewParser(o)
		var content, arguments string
		take := func(events []Event) {
			for _, e := range events {
				switch e.Kind {
				case ContentEvent:
					content += e.Text
				case CallArgumentsEvent:
					arguments += e.Text
				}
			}
		}
		for rest := answer; rest != ""; {
			n := min(size, len(rest))
			take(p.Feed(rest[:n]))
			rest = rest[n:]
		}
		take(p.Finish())
		if content != want.Content || arguments != want.ToolCalls[0].Arguments {
			t.Errorf("pieces of %d: %q and %q", size, content, arguments)
		}
	}
}

// TestEventKindsAreThoseOfToolcall: the kinds are converted by their number.
func TestEventKindsAreThoseOfToolcall(t *testing.T) {
	for _, c := range []struct {
		own  EventKind
		from toolcall.Kind
	}{{ContentEvent, toolcall.Content}, {ReasoningEvent, toolcall.Reasoning}, {CallStartEvent, toolcall.CallStart},
		{CallArgumentsEvent, toolcall.CallArguments}, {CallEndEvent, toolcall.CallEnd}} {
		if c.own != EventKind(c.from) {
			t.Errorf("%v is %d", c.from, c.own)
		}
	}
}

// TestZeroTokenizersAndChatsDoNotPanic: all methods of the zero values, and of nil, did.
func TestZeroTokenizersAndChatsDoNotPanic(t *testing.T) {
	for _, tok := range []*Tokenizer{nil, {}} {
		_, err := tok.Encode("a", EncodeOptions{})
		_, _, spans := tok.EncodeSpans("", EncodeOptions{})
		if want := "text: the tokenizer has no tokens: make one with text.Open or text.ParseTokenizer"; err == nil || err.Error() != want || spans == nil {
			t.Errorf("got %v and %v, want %s", err, spans, want)
		}
		d := tok.NewDecoder(false)
		piece, ok, err := d.Next(1)
		id, known := tok.ID("a")
		if piece != "" || ok || err != nil || d.Flush() != "" || known || tok.IsSpecial(id) || tok.VocabSize() != 0 || len(tok.SpecialTokens()) > 0 || tok.Decode([]int32{0, -1}, true) != "" {
			t.Errorf("the zero tokenizer decodes %q, %v, %v and has %d tokens", piece, ok, err, tok.VocabSize())
		}
		_, named := tok.Token(0)
		_, written := tok.TokenBytes(0)
		if named || written || tok.LeastTokens("a b") < 0 || tok.MostBytes(2) < 0 {
			t.Error("the zero tokenizer has token 0")
		}
	}
	var d Decoder
	if piece, ok, err := d.Next(1); piece != "" || ok || err != nil || d.Flush() != "" {
		t.Errorf("the zero decoder: %q, %v, %v", piece, ok, err)
	}
	for _, c := range []*Chat{nil, {}} {
		_, err := c.Render(Conversation{Messages: []Message{User("a")}})
		var unusable *TemplateError
		if !errors.As(err, &unusable) || !unusable.Unusable || c.HasTemplate() || c.Err() != nil || len(c.SpecialTokens()) > 0 || c.SpecialToken("eos_token") != "" || c.UnreadCalls() || c.Visible("a") {
			t.Errorf("the zero chat: %v", err)
		}
		parsed, err := c.WithParsers("hermes", "")
		if m := c.Parse("a", ParseOptions{Prompt: "b"}); m.Content != "a" || err != nil || !parsed.ParsesCalls() || c.NewCallID("f", 0) == "" || c.Frame(ParseOptions{}) != (Frame{}) {
			t.Errorf("the zero chat parses %v; %v", m, err)
		}
	}
	var p Parser
	if events := append(slices.Clone(p.Feed("a")), p.Finish()...); len(events) != 1 || events[0].Text != "a" {
		t.Errorf("the zero parser: %v", events)
	}
}
