package api_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

const chatEndpoint = "/v1/chat/completions"

// chatted is the answer to a request of chat.
func (s *server) chatted(body obj) map[string]any {
	s.t.Helper()
	status, answer := s.object("POST", chatEndpoint, body)
	if status != 200 {
		s.t.Fatalf("%d %v", status, answer)
	}
	return answer
}

// patchGrammar is a grammar of patches with few letters: the first character of a line is its kind.
const patchGrammar = "start: \"*** Begin\" LF line+ \"*** End\"\nline: (\"+\" | \"-\") /[a-c\"\\\\]{1,3}/ LF\n%import common.LF\n"

var patchText = regexp.MustCompile(`^\*\*\* Begin\n([+-][a-c"\\]{1,3}\n)+\*\*\* End$`)

// customChat is a request that must call a custom tool whose text matches a grammar.
func customChat(format obj) obj {
	return obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "temperature": 1, "seed": 4, "max_tokens": 4000, "parallel_tool_calls": false,
		"tools":       []obj{{"type": "custom", "custom": obj{"name": "patch", "description": "Patches.", "format": format}}, weather[0]},
		"tool_choice": obj{"type": "custom", "custom": obj{"name": "patch"}}}
}

var larkFormat = obj{"type": "grammar", "grammar": obj{"syntax": "lark", "definition": patchGrammar}}

// TestCustomToolsOfChat: they were a 400. The text of a call matches its grammar, in each notation, whole and in pieces.
func TestCustomToolsOfChat(t *testing.T) {
	for name, template := range notations {
		t.Run(name, func(t *testing.T) {
			s := serve(t, randomCaller(t, template))
			answer := s.chatted(customChat(larkFormat))
			call := at(answer, "choices", 0, "message", "tool_calls", 0)
			input, _ := at(call, "custom", "input").(string)
			if at(call, "type") != "custom" || at(call, "custom", "name") != "patch" || at(call, "function") != nil || !patchText.MatchString(input) {
				t.Fatalf("got %v", answer)
			}
			body := customChat(larkFormat)
			body["stream"] = true
			joined := ""
			data := s.stream(chatEndpoint, body)
			for _, d := range data[:len(data)-1] {
				piece := at(parse(t, d), "choices", 0, "delta", "tool_calls", 0)
				if piece == nil {
					continue
				}
				if at(piece, "function") != nil || (at(piece, "type") == "custom") != (at(piece, "custom", "name") == "patch") {
					t.Errorf("piece %v", piece)
				}
				joined += at(piece, "custom", "input").(string)
			}
			if joined != input {
				t.Errorf("pieces are %q, want %q", joined, input)
			}
		})
	}
}

// TestCustomToolsOfResponses: items, events, stored ones too, and what clients send back.
func TestCustomToolsOfResponses(t *testing.T) {
	for name, template := range notations {
		t.Run(name, func(t *testing.T) { checkCustomItems(t, serve(t, randomCaller(t, template))) })
	}
}

func checkCustomItems(t *testing.T, s *server) {
	t.Helper()
	body := obj{"input": "Hi", "temperature": 1, "seed": 5, "parallel_tool_calls": false, "tool_choice": obj{"type": "custom", "name": "code"},
		"tools": []obj{{"type": "custom", "name": "code", "description": "Runs code.", "format": obj{"type": "grammar", "syntax": "regex", "definition": `[a-f]{2,9}\n"`}}}}
	events := s.events(body)
	r := at(events[len(events)-1].data, "response").(map[string]any)
	output := r["output"].([]any)
	call := at(output, len(output)-1).(map[string]any)
	input, _ := call["input"].(string)
	if call["type"] != "custom_tool_call" || call["name"] != "code" || call["status"] != "completed" || !strings.HasPrefix(call["id"].(string), "ctc_") ||
		!regexp.MustCompile(`^[a-f]{2,9}\n"$`).MatchString(input) || call["arguments"] != nil {
		t.Fatalf("got %v", output)
	}
	if at(r, "tools", 0, "type") != "custom" || at(r, "tools", 0, "format", "syntax") != "regex" || at(r, "tools", 0, "parameters") != nil {
		t.Errorf("tools %v", r["tools"])
	}
	joined, whole := "", any(nil)
	for _, e := range events {
		switch e.data["type"] {
		case "response.custom_tool_call_input.delta":
			joined += e.data["delta"].(string)
		case "response.custom_tool_call_input.done":
			whole = e.data["input"]
		case "response.function_call_arguments.delta", "response.function_call_arguments.done":
			t.Errorf("event %v", e.data)
		}
	}
	if joined != input || whole != input {
		t.Errorf("events have %q and %q, want %q", joined, whole, input)
	}
	checkSentBack(t, s, body, events, r)
}

// checkSentBack checks a stored response whose last item is a call, and requests that go on from it.
func checkSentBack(t *testing.T, s *server, body obj, events []event, r map[string]any) {
	t.Helper()
	output := r["output"].([]any)
	call := at(output, len(output)-1).(map[string]any)
	id := r["id"].(string)
	if again := s.readEvents(s.doStream("GET", responsesPath+"/"+id+"?stream=true"), 0); !reflect.DeepEqual(again, events) {
		t.Errorf("the events that were stored are\n%v, want\n%v", again, events)
	}
	count := func(more obj) any {
		t.Helper()
		next := maps.Clone(body)
		delete(next, "tool_choice")
		maps.Copy(next, more)
		status, o := s.object("POST", responsesPath+"/input_tokens", next)
		if status != 200 {
			t.Fatalf("%d %v", status, o)
		}
		return o["input_tokens"]
	}
	result := obj{"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
	items := append(append([]any{obj{"role": "user", "content": "Hi"}}, output...), result)
	if got, want := count(obj{"input": items}), count(obj{"previous_response_id": id, "input": []any{result}}); got != want {
		t.Errorf("items make a prompt of %v tokens, want %v", got, want)
	}
	next := maps.Clone(body)
	next["input"], next["previous_response_id"] = []any{result}, id
	delete(next, "stream")
	status, later := s.object("POST", responsesPath, next)
	if status != 200 {
		t.Fatalf("%d %v", status, later)
	}
	_, list := s.object("GET", responsesPath+"/"+later["id"].(string)+"/input_items", nil)
	if item := at(list, "data", 0); at(item, "type") != "custom_tool_call_output" || at(item, "output") != "done" || !strings.HasPrefix(at(item, "id").(string), "ctco_") {
		t.Errorf("input items %v", list)
	}
}

// TestCustomToolsTakeAnyText: without a format, and where the model writes other arguments than one text.
func TestCustomToolsTakeAnyText(t *testing.T) {
	says := func(arguments string) string {
		return "<tool_call>\n{\"name\": \"code\", \"arguments\": " + arguments + "}\n</tool_call>"
	}
	for arguments, want := range map[string]string{
		`{"input": "a\n\"世\u00e9\ud83d\ude42\\"}`: "a\n\"世é🙂\\",
		`{"input": ""}`:     "",
		`{"other": [1, 2]}`: `{"other": [1, 2]}`,
	} {
		s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: says(arguments)}, engine.Options{}))
		body := obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "tools": []obj{{"type": "custom", "custom": obj{"name": "code"}}}}
		answer := s.chatted(body)
		if got := at(answer, "choices", 0, "message", "tool_calls", 0, "custom", "input"); got != want {
			t.Errorf("%s: got %v, want %q", arguments, answer, want)
		}
	}
}

// TestACustomCallIsRenderedAsTheModelWroteIt: a call that a client sends back gives the prompt of a function call.
func TestACustomCallIsRenderedAsTheModelWroteIt(t *testing.T) {
	s := serve(t, hermes(t))
	prompt := func(call obj) any {
		t.Helper()
		status, o := s.object("POST", "/apply-template", obj{"messages": []obj{{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": []obj{call}},
			{"role": "tool", "tool_call_id": "call_1", "content": "ok"}}})
		if status != 200 {
			t.Fatalf("%d %v", status, o)
		}
		return o["prompt"]
	}
	arguments, _ := json.Marshal(obj{"input": "a<b\n"})
	custom := prompt(obj{"id": "call_1", "type": "custom", "custom": obj{"name": "code", "input": "a<b\n"}})
	if want := prompt(obj{"id": "call_1", "type": "function", "function": obj{"name": "code", "arguments": string(arguments)}}); custom != want {
		t.Errorf("got %v, want %v", custom, want)
	}
}

// TestCustomToolsNameWhatIsWrong: errors name the field, and the part of a grammar that is not supported.
func TestCustomToolsNameWhatIsWrong(t *testing.T) {
	s := serve(t, randomCaller(t, notations["tags"]))
	grammar := func(syntax, definition string) obj {
		return obj{"type": "grammar", "grammar": obj{"syntax": syntax, "definition": definition}}
	}
	const definition = "tools[0].custom.format.grammar.definition"
	for name, c := range map[string]struct {
		format         obj
		param, message string
	}{
		"not defined": {grammar("lark", "start: \"(\" start \")\" | b"), definition, `"b" is not defined`},
		"not closed":  {grammar("lark", "start: \"a"), definition, "line 1: a string is not closed"},
		"lookbehind":  {grammar("regex", "(?<=a)b"), definition, "lookbehind"},
		"a syntax":    {grammar("gbnf", "root ::= \"a\""), "tools[0].custom.format.grammar.syntax", "regex"},
		"no text":     {grammar("lark", ""), definition, "empty"},
		"a type":      {obj{"type": "json"}, "tools[0].custom.format.type", "grammar"},
		"no name":     {nil, "tools[0].custom.name", "Missing"},
		"empty texts": {grammar("regex", `[^\u{0}-\u{10ffff}]`), "tool_choice", "no text matches"},
	} {
		body := customChat(c.format)
		if c.format == nil {
			body["tools"] = []obj{{"type": "custom", "custom": obj{}}}
		}
		status, e := s.object("POST", chatEndpoint, body)
		if text, _ := at(e, "error", "message").(string); status != 400 || at(e, "error", "param") != c.param || !strings.Contains(text, c.message) {
			t.Errorf("%s: %d %v, want 400 of %s: %s", name, status, e, c.param, c.message)
		}
	}
	status, e := s.object("POST", responsesPath, obj{"input": "Hi", "tools": []obj{{"type": "custom", "name": "f", "format": obj{"type": "grammar", "syntax": "lark", "definition": "start: b"}}}})
	if status != 400 || at(e, "error", "param") != "tools[0].format.definition" || !strings.Contains(at(e, "error", "message").(string), `"b" is not defined`) {
		t.Errorf("%d %v", status, e)
	}
}

// TestVerbosityIsAVariableOfTheTemplate: it was a 400.
func TestVerbosityIsAVariableOfTheTemplate(t *testing.T) {
	says := generatetest.Speaker{Template: `{% for m in messages %}{{ m.content }}{% endfor %}{{ verbosity if verbosity is defined else 'none' }}`}
	s := serve(t, generatetest.Speaking(t, says, engine.Options{}))
	for verbosity, want := range map[any]string{nil: "Hinone", "low": "Hilow", "high": "Hihigh"} {
		if _, o := s.object("POST", "/apply-template", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "verbosity": verbosity}); o["prompt"] != want {
			t.Errorf("%v: got %v, want %q", verbosity, o, want)
		}
	}
	if _, r := s.object("POST", responsesPath, obj{"input": "Hi", "text": obj{"verbosity": "low"}}); at(r, "text", "verbosity") != "low" {
		t.Errorf("got %v", r)
	}
	for path, body := range map[string]obj{chatEndpoint: {"messages": []obj{{"role": "user", "content": "Hi"}}, "verbosity": "loud"}, responsesPath: {"input": "Hi", "text": obj{"verbosity": "loud"}}} {
		if status, e := s.object("POST", path, body); status != 400 || !strings.Contains(at(e, "error", "param").(string), "verbosity") {
			t.Errorf("%s: %d %v", path, status, e)
		}
	}
}

// TestCustomToolsTakeNestedGrammars: where arguments are JSON.
func TestCustomToolsTakeNestedGrammars(t *testing.T) {
	s := serve(t, randomCaller(t, notations["tags"]))
	answer := s.chatted(customChat(obj{"type": "grammar", "grammar": obj{"syntax": "lark", "definition": "start: \"(\" start \"\\n\" start \")\" | /[a-c]/"}}))
	input, _ := at(answer, "choices", 0, "message", "tool_calls", 0, "custom", "input").(string)
	for inner, last := regexp.MustCompile(`\([a-c]\n[a-c]\)`), ""; input != last; {
		last, input = input, inner.ReplaceAllString(input, "a")
	}
	if !regexp.MustCompile(`^[a-c]$`).MatchString(input) {
		t.Errorf("got %v", answer)
	}
}
