package api_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// The templates of made-up models, each with the markers of one family.
const (
	turns = `{%- for m in messages %}<|{{ m.role }}|>{{ m.reasoning_content or '' }}{{ m.content or '' }}` +
		`{%- for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}` +
		`{{- m.tool_call_id or '' }}<|end|>{% endfor %}`
	hermesTemplate = `{%- for t in tools or [] %}{{ t | tojson }} <tool_call> </tool_call> {% endfor %}` + turns +
		`{%- if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}` +
		`{%- if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}{% endif %}`
	llamaTemplate    = `{#- ipython #}{%- for t in tools or [] %}{{ t | tojson }} {"name": N, "parameters": P}{% endfor %}` + turns + `<|assistant|>`
	mistralTemplate  = `{%- for t in tools or [] %}{{ t | tojson }} [TOOL_CALLS]{% endfor %}` + turns + `<|assistant|>`
	deepseekTemplate = "{#- <｜tool▁call▁begin｜> ```json #}{%- for t in tools or [] %}{{ t | tojson }}{% endfor %}" + turns +
		`{%- if add_generation_prompt %}<|assistant|><think>{{ '\n' }}{% endif %}`
	harmonyTemplate = `{#- <|channel|> <|message|> #}{%- for t in tools or [] %}{{ t | tojson }}{% endfor %}` + turns + `<|start|>assistant`
)

var (
	deepseekSpecial = []string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}
	harmonySpecial  = []string{"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|constrain|>"}
	weather         = []obj{{"type": "function", "function": obj{"name": "weather", "parameters": obj{
		"type": "object", "properties": obj{"city": obj{"type": "string"}}}}}}
)

// spoken is an answer as a client sees it, whole or put together from chunks.
type spoken struct {
	Content   string
	Reasoning string
	Calls     []spokenCall
	Finish    string
}

type spokenCall struct{ Name, Arguments string }

var oslo = spokenCall{"weather", `{"city": "Oslo"}`}

// speakers are models of all kinds, their output, and the answer that a client should see.
var speakers = []struct {
	name    string
	speaker generatetest.Speaker
	want    spoken
}{
	{"hermes", generatetest.Speaker{Template: hermesTemplate, Says: "<think>\nWhere? There.\n</think>\n\nI look.\n" +
		"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n" +
		"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"世\\n\"}}\n</tool_call>"},
		spoken{"I look.", "Where? There.", []spokenCall{oslo, {"weather", `{"city": "世\n"}`}}, "tool_calls"}},
	{"hermes, no call", generatetest.Speaker{Template: hermesTemplate, Says: "No <tool> here:\n<tool_call> "},
		spoken{"No <tool> here:\n<tool_call> ", "", nil, "stop"}},
	{"llama", generatetest.Speaker{Template: llamaTemplate, Says: `{"name": "weather", "parameters": {"city": "Oslo"}}`},
		spoken{"", "", []spokenCall{oslo}, "tool_calls"}},
	{"llama, an unknown tool", generatetest.Speaker{Template: llamaTemplate, Says: `{"name": "nope", "parameters": {"city": "Oslo"}}`},
		spoken{`{"name": "nope", "parameters": {"city": "Oslo"}}`, "", nil, "stop"}},
	{"mistral", generatetest.Speaker{Template: mistralTemplate, Special: []string{"[TOOL_CALLS]"},
		Says: `[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}, "id": "abcdefghi"}]`},
		spoken{"", "", []spokenCall{oslo}, "tool_calls"}},
	{"deepseek", generatetest.Speaker{Template: deepseekTemplate, Special: deepseekSpecial,
		Says: "Hm.\n</think>\n\nThe answer is 4."},
		spoken{"The answer is 4.", "Hm.", nil, "stop"}},
	{"deepseek, a call", generatetest.Speaker{Template: deepseekTemplate, Special: deepseekSpecial,
		Says: "Hm.</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
		spoken{"I look.", "Hm.", []spokenCall{oslo}, "tool_calls"}},
	{"harmony", generatetest.Speaker{Template: harmonyTemplate, Special: harmonySpecial,
		Says: "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}"},
		spoken{"", "Hm.", []spokenCall{oslo}, "tool_calls"}},
	{"harmony, an answer", generatetest.Speaker{Template: harmonyTemplate, Special: harmonySpecial,
		Says: "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four."},
		spoken{"Four.", "Hm.", nil, "stop"}},
}

// whole reads a choice.
func whole(t *testing.T, choice any) spoken {
	t.Helper()
	m := at(choice, "message")
	s := spoken{Finish: at(choice, "finish_reason").(string)}
	s.Content, _ = at(m, "content").(string)
	s.Reasoning, _ = at(m, "reasoning_content").(string)
	if r, _ := at(m, "reasoning").(string); r != s.Reasoning {
		t.Errorf("reasoning %q, reasoning_content %q", r, s.Reasoning)
	}
	calls, _ := at(m, "tool_calls").([]any)
	ids := map[any]bool{}
	for _, c := range calls {
		if id, _ := at(c, "id").(string); len(id) < 9 || ids[id] || at(c, "type") != "function" {
			t.Errorf("call %v", c)
		}
		ids[at(c, "id")] = true
		s.Calls = append(s.Calls, spokenCall{at(c, "function", "name").(string), at(c, "function", "arguments").(string)})
	}
	if content, there := m.(obj)["content"]; !there || (content == nil) != (s.Content == "" && s.Calls != nil) {
		t.Errorf("content %v", m)
	}
	return s
}

// pieced puts together the one choice of a stream, as clients do.
func pieced(t *testing.T, data []string) spoken {
	t.Helper()
	var s spoken
	for _, d := range data[:len(data)-1] {
		choice := at(parse(t, d), "choices", 0)
		if choice == nil {
			continue
		}
		delta := at(choice, "delta")
		text, _ := at(delta, "content").(string)
		thought, _ := at(delta, "reasoning_content").(string)
		s.Content, s.Reasoning = s.Content+text, s.Reasoning+thought
		pieces, _ := at(delta, "tool_calls").([]any)
		for _, p := range pieces {
			name, first := at(p, "function", "name").(string)
			if id, there := at(p, "id").(string); there != first || first && (id == "" || at(p, "type") != "function") {
				t.Errorf("piece %v", p)
			}
			if first {
				s.Calls = append(s.Calls, spokenCall{Name: name})
			}
			if i := int(mustInt(t, at(p, "index"))); i != len(s.Calls)-1 {
				t.Fatalf("a piece of call %d, of %d", i, len(s.Calls))
			}
			s.Calls[len(s.Calls)-1].Arguments += at(p, "function", "arguments").(string)
		}
		if finish, ok := at(choice, "finish_reason").(string); ok {
			s.Finish = finish
		}
	}
	return s
}

// asked is a greedy request with a tool.
func asked(more obj) obj {
	body := obj{"messages": hello, "temperature": 0, "tools": weather}
	maps.Copy(body, more)
	return body
}

// hear asks for an answer at once and in chunks, which must say the same.
func hear(t *testing.T, m *generate.Model, body obj) spoken {
	t.Helper()
	s := serve(t, m)
	got := whole(t, s.answers(chat, maps.Clone(body))[0])
	if streamed := pieced(t, s.stream(chat, maps.Clone(body))); !reflect.DeepEqual(streamed, got) {
		t.Errorf("streamed %+v\nat once  %+v", streamed, got)
	}
	return got
}

func TestCallsAndReasoning(t *testing.T) {
	for _, c := range speakers {
		t.Run(c.name, func(t *testing.T) {
			m := generatetest.Speaking(t, c.speaker, engine.Options{})
			if got := hear(t, m, asked(nil)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// speaker is one of speakers.
func speaker(t *testing.T, name string) generatetest.Speaker {
	for _, c := range speakers {
		if c.name == name {
			return c.speaker
		}
	}
	t.Fatalf("no speaker %q", name)
	return generatetest.Speaker{}
}

func TestCallMarkupIsContentWithoutTools(t *testing.T) {
	m := generatetest.Speaking(t, speaker(t, "hermes"), engine.Options{})
	_, markup, _ := strings.Cut(speaker(t, "hermes").Says, "</think>\n\n")
	want := spoken{markup, "Where? There.", nil, "stop"}
	for name, body := range map[string]obj{
		"none given": {"messages": hello, "temperature": 0}, "empty": asked(obj{"tools": []obj{}}), "none allowed": asked(obj{"tool_choice": "none"}),
	} {
		if got := hear(t, m, body); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// TestAllowedToolsOfAChat: OpenAI's tool_choice allowed_tools was a 400. The model sees and calls the allowed tools only.
func TestAllowedToolsOfAChat(t *testing.T) {
	m := generatetest.Speaking(t, speaker(t, "hermes"), engine.Options{})
	tools := []obj{weather[0], {"type": "function", "function": obj{"name": "other", "description": "a word that only this tool has"}}}
	allow := func(name string) obj {
		return obj{"tools": tools, "tool_choice": obj{"type": "allowed_tools", "allowed_tools": obj{"mode": "auto", "tools": []obj{{"type": "function", "function": obj{"name": name}}}}}}
	}
	if got, want := hear(t, m, asked(allow("weather"))), speakers[0].want; !reflect.DeepEqual(got, want) {
		t.Errorf("the tool is allowed: got %+v, want %+v", got, want)
	}
	s := serve(t, m)
	prompt := func(more obj) int64 {
		_, got := s.object("POST", chat, asked(more))
		return mustInt(t, at(got, "usage", "prompt_tokens"))
	}
	if one, allowed, all := prompt(nil), prompt(allow("weather")), prompt(obj{"tools": tools}); allowed != one || all <= one {
		t.Errorf("prompts of %d tokens with one tool, %d with one of two allowed, %d with two", one, allowed, all)
	}
}

func TestOneCallAndNoReasoningWhereTheRequestSaysSo(t *testing.T) {
	m := generatetest.Speaking(t, speaker(t, "hermes"), engine.Options{})
	all := speakers[0].want
	if got, want := hear(t, m, asked(obj{"parallel_tool_calls": false})), (spoken{all.Content, all.Reasoning, all.Calls[:1], "tool_calls"}); !reflect.DeepEqual(got, want) {
		t.Errorf("one call: %+v", got)
	}
	if got, want := hear(t, m, asked(obj{"include_reasoning": false})), (spoken{all.Content, "", all.Calls, "tool_calls"}); !reflect.DeepEqual(got, want) {
		t.Errorf("no reasoning: %+v", got)
	}
	s := serve(t, m)
	_, got := s.object("POST", chat, asked(obj{"n": 2, "logprobs": true, "return_token_ids": true}))
	for i := range 2 {
		choice := at(got, "choices", i)
		if g := whole(t, choice); !reflect.DeepEqual(g, all) {
			t.Errorf("choice %d: %+v", i, g)
		}
		ids, _ := at(choice, "token_ids").([]any)
		logprobs, _ := at(choice, "logprobs", "content").([]any)
		if len(ids) < 20 || len(ids) != len(logprobs) {
			t.Errorf("%d ids, %d log-probabilities", len(ids), len(logprobs))
		}
	}
	n := mustInt(t, at(got, "usage", "completion_tokens_details", "reasoning_tokens"))
	if total := mustInt(t, at(got, "usage", "completion_tokens")); n < 10 || n > total/2 {
		t.Errorf("%d of %d tokens are reasoning", n, total)
	}
}

// TestStopStringsAreOfTheContent: they end the answer, not a thought or a call.
func TestStopStringsAreOfTheContent(t *testing.T) {
	m := generatetest.Speaking(t, speaker(t, "hermes"), engine.Options{})
	for stop, want := range map[string]spoken{
		"look":  {"I ", "Where? There.", nil, "stop"},
		"There": speakers[0].want,
		"Oslo":  speakers[0].want,
	} {
		if got := hear(t, m, asked(obj{"stop": stop})); !reflect.DeepEqual(got, want) {
			t.Errorf("stop %q: %+v", stop, got)
		}
	}
}

// TestATruncatedCallIsNotRun: a truncated call does not ask the client to run it.
func TestATruncatedCallIsNotRun(t *testing.T) {
	says := generatetest.Speaker{Template: hermesTemplate, Says: `<tool_call>{"name": "weather", "arguments": {"city": Oslo}}</tool_call>`}
	got := hear(t, generatetest.Speaking(t, says, engine.Options{}), asked(nil))
	if len(got.Calls) != 1 || json.Valid([]byte(got.Calls[0].Arguments)) || got.Finish != "stop" || got.Content != "}}</tool_call>" {
		t.Errorf("broken: %+v", got)
	}
	m := generatetest.Speaking(t, speaker(t, "llama"), engine.Options{})
	ids, err := m.Encode(t.Context(), `{"name": "weather", "parameters": {"city": "Os`, false)
	if err != nil {
		t.Fatal(err)
	}
	got = hear(t, m, asked(obj{"max_tokens": len(ids) - 1}))
	if len(got.Calls) != 1 || !strings.HasPrefix(got.Calls[0].Arguments, `{"city": "`) || got.Finish != "length" || got.Content != "" {
		t.Errorf("cut off: %+v", got)
	}
}

// TestACallIDAfterTheArgumentsIsUsed: an id behind the arguments is the call's where nothing has been sent yet.
func TestACallIDAfterTheArgumentsIsUsed(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, speaker(t, "mistral"), engine.Options{}))
	if id := at(s.answers(chat, asked(nil))[0], "message", "tool_calls", 0, "id"); id != "abcdefghi" {
		t.Errorf("id %v", id)
	}
	for _, d := range s.stream(chat, asked(nil)) {
		if strings.Contains(d, "abcdefghi") {
			t.Errorf("a second id: %s", d)
		}
	}
}

// TestReasoningIsTurnedOffAsClientsOfOtherServersDo: fields of DashScope, SGLang, DeepSeek, GLM, Kimi and OpenRouter were a
// 400. They are the variables that the chat template has for it, unless the request sets those itself.
func TestReasoningIsTurnedOffAsClientsOfOtherServersDo(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "Fine."}, engine.Options{}))
	prompt := func(more obj) any {
		t.Helper()
		body := obj{"messages": hello, "max_tokens": 1, "return_token_ids": true}
		maps.Copy(body, more)
		status, r := s.object("POST", chat, body)
		if status != 200 {
			t.Fatalf("%v: %d %v", more, status, r)
		}
		return at(r, "choices", 0, "prompt_token_ids")
	}
	usual, off := prompt(nil), prompt(obj{"chat_template_kwargs": obj{"enable_thinking": false}})
	if reflect.DeepEqual(usual, off) {
		t.Fatal("the template has no such variable")
	}
	for _, body := range []obj{{"enable_thinking": false}, {"thinking": obj{"type": "disabled"}}, {"reasoning": obj{"enabled": false}},
		{"enable_thinking": true, "chat_template_kwargs": obj{"enable_thinking": false}}} {
		if got := prompt(body); !reflect.DeepEqual(got, off) {
			t.Errorf("%v: got %v, want %v", body, got, off)
		}
	}
	for _, body := range []obj{{"enable_thinking": true}, {"thinking": obj{"type": "enabled", "budget_tokens": 9}}, {"thinking": obj{"type": "adaptive"}}, {"reasoning": obj{"enabled": true}}, {"thinking": obj{}}} {
		if got := prompt(body); !reflect.DeepEqual(got, usual) {
			t.Errorf("%v: got %v, want %v", body, got, usual)
		}
	}
	status, e := s.object("POST", chat, obj{"messages": hello, "thinking": obj{"type": "enabled"}, "enable_thinking": false})
	if status != 400 || at(e, "error", "param") != "thinking.type" {
		t.Errorf("fields that contradict each other: %d %v", status, e)
	}
}

// TestTemplatesSeeTheRequest: arguments of the template, and what earlier turns have said.
func TestTemplatesSeeTheRequest(t *testing.T) {
	m := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "Fine."}, engine.Options{})
	s := serve(t, m)
	for _, c := range []struct {
		body obj
		want string
	}{
		{obj{"messages": hello, "chat_template_kwargs": obj{"enable_thinking": false}}, "<|user|>Hi<|end|><|assistant|><think>\n\n</think>\n\n"},
		{obj{"messages": hello, "reasoning_effort": "low"}, "<|user|>Hi<|end|><|assistant|>low"},
		{obj{"messages": []obj{
			{"role": "assistant", "content": nil, "reasoning": "Hm. ", "tool_calls": []obj{
				{"id": "call_1", "type": "function", "function": obj{"name": "weather", "arguments": `{"b": 1, "a": [2]}`}}}},
			{"role": "tool", "tool_call_id": "call_1", "content": "4°"},
		}}, `<|assistant|>Hm. call_1 weather {"b": 1, "a": [2]}<|end|><|tool|>4°call_1<|end|><|assistant|>`},
	} {
		_, got := s.object("POST", "/tokenize", c.body)
		ids, _ := at(got, "tokens").([]any)
		list := make([]int32, len(ids))
		for i := range ids {
			list[i] = int32(mustInt(t, ids[i]))
		}
		if prompt := m.Tokenizer.Decode(list, false); prompt != c.want {
			t.Errorf("prompt %q, want %q: %v", prompt, c.want, got["error"])
		}
	}
	m = generatetest.Speaking(t, generatetest.Speaker{Template: deepseekTemplate, Special: deepseekSpecial, Says: " and so on.</think>Yes."}, engine.Options{})
	got := hear(t, m, asked(obj{"continue_final_message": "reasoning_content",
		"messages": []obj{{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "First"}}}))
	if want := (spoken{"Yes.", "and so on.", nil, "stop"}); !reflect.DeepEqual(got, want) {
		t.Errorf("continued: %+v", got)
	}
}

// TestPinnedFamilies: parsers that are named by hand replace those of the template.
func TestPinnedFamilies(t *testing.T) {
	says := generatetest.Speaker{Template: turns + `<|assistant|>`, Says: `<think>Hm.</think><tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>`}
	for _, c := range []struct {
		calls, reasoning string
		want             spoken
	}{
		{"", "", spoken{says.Says, "", nil, "stop"}},
		{"hermes", "", spoken{"", "Hm.", []spokenCall{oslo}, "tool_calls"}},
		{"hermes", "none", spoken{"<think>Hm.</think>", "", []spokenCall{oslo}, "tool_calls"}},
		{"hermes", "mistral", spoken{"", "Hm.", []spokenCall{oslo}, "tool_calls"}},
		{"", "hermes", spoken{strings.TrimPrefix(says.Says, "<think>Hm.</think>"), "Hm.", nil, "stop"}},
	} {
		m := generatetest.Speaking(t, says, engine.Options{})
		var err error
		if m.Chat, err = m.Chat.WithParsers(c.calls, c.reasoning); err != nil {
			t.Fatal(err)
		}
		if got := hear(t, m, asked(nil)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("calls %q, reasoning %q: %+v", c.calls, c.reasoning, got)
		}
	}
	for _, names := range [][2]string{{"nope", ""}, {"", "nope"}} {
		if _, err := generatetest.WithText(t, "").Chat.WithParsers(names[0], names[1]); err == nil || !strings.Contains(err.Error(), "hermes") {
			t.Errorf("%q: %v", names, err)
		}
	}
}
