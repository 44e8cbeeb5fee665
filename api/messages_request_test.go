package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/messages"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/generatetest"
)

// TestAThreadOfMessagesIsSentAgain: Anthropic's clients continue a thread with its last messages alone, and recover from
// the code thread_not_found with all messages; a thread that is created has them all already.
func TestAThreadOfMessagesIsSentAgain(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	result := `{"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "sunny"}]}], "thread": `
	status, e := s.object("POST", messagesPath, result+`{"type": "continue", "previous_message_id": "msg_a"}}`)
	if status != http.StatusNotFound || at(e, "error", "type") != "not_found_error" || at(e, "error", "details", "error_code") != "thread_not_found" {
		t.Errorf("a thread that continues: %d %v", status, e)
	}
	if status, e = s.object("POST", messagesPath, result+`{"type": "create"}}`); status != http.StatusBadRequest || at(e, "error", "details") != nil {
		t.Errorf("a result without its call: %d %v", status, e)
	}
	if status, e = s.object("POST", messagesPath, `{"max_tokens": 9, "messages": [{"role": "user", "content": "a"}], "thread": {"type": "create"}}`); status != http.StatusOK {
		t.Errorf("a thread that begins: %d %v", status, e)
	}
}

// TestMessagesNameWhatIsWrong: each wrong field is a 400 that names it and, where it is of a service, the tool.
func TestMessagesNameWhatIsWrong(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	user := func(content string) string { return `"messages": [{"role": "user", "content": ` + content + `}]` }
	block := func(b string) string { return user(`[{"type": "text", "text": "a"}, ` + b + `]`) }
	for _, c := range [][3]string{ // fields in addition to max_tokens, the field at fault, a part of the message
		{``, "messages", "at least one"}, {`"messages": []`, "messages", "at least one"}, {`"messages": 3`, "messages", "list of messages"}, {`"messages": [3]`, "messages[0]", "object"},
		{`"messages": [{"content": "a"}]`, "messages[0].role", "Missing"}, {`"messages": [{"role": "user"}]`, "messages[0].content", "Missing"},
		{`"messages": [{"role": "tool", "content": "a"}]`, "messages[0].role", "tool"},
		{user(`3`), "messages[0].content", "string or a list"}, {user(`[{"text": "a"}]`), "messages[0].content[0].type", "Missing"}, {user(`[{"type": "text"}]`), "messages[0].content[0].text", "Missing"},
		{block(`{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}`), "messages[0].content[1].type", `"image" is not supported`},
		{block(`{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}`), "messages[0].content[1].source.type", `a document of type "base64" is not supported`},
		{block(`{"type": "document", "source": {"type": "text", "data": "a"}, "citations": {"enabled": true}}`), "messages[0].content[1].citations.enabled", "cites no documents"},
		{block(`{"type": "document"}`), "messages[0].content[1].source", "Missing"}, {block(`{"type": "document", "source": {"type": "text"}}`), "messages[0].content[1].source.data", "Missing"},
		{block(`{"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}}`), "messages[0].content[1].source.content[0].type", `"image" is not supported`},
		{block(`{"type": "web_search_tool_result", "tool_use_id": "a"}`), "messages[0].content[1].type", "web_search_tool_result"},
		{block(`{"type": "tool_result", "content": "a"}`), "messages[0].content[1].tool_use_id", "Missing"},
		{block(`{"type": "tool_result", "tool_use_id": "a"}`), "messages[0].content[1].tool_use_id", "no tool_use"},
		{`"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}]`, "messages[0].content[0].input", "Missing"},
		{`"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]`, "messages", "no tool_result"},
		{user(`"a"`) + `, "system": 3`, "system", "string or a list"}, {user(`"a"`) + `, "system": [{"type": "image"}]`, "system[0].type", "image"},
		{user(`"a"`) + `, "stop_sequences": "a"`, "stop_sequences", "list of strings"}, {user(`"a"`) + `, "stop_sequences": [" "]`, "stop_sequences", "white space"},
		{user(`"a"`) + `, "temperature": 3`, "temperature", "between"}, {user(`"a"`) + `, "thinking": {"type": "on"}`, "thinking.type", "enabled"},
		{user(`"a"`) + `, "thinking": {"type": "enabled"}`, "thinking.budget_tokens", "Missing"}, {user(`"a"`) + `, "thinking": {"type": "enabled", "budget_tokens": 9}`, "max_tokens", "greater"},
		{user(`"a"`) + `, "tools": [{"type": "web_search_20250305", "name": "web_search"}]`, "tools[0].type", "web_search_20250305"},
		{user(`"a"`) + `, "tools": [{"type": "memory_20250818", "name": "memory"}]`, "tools[0].type", "only models that were trained with it know its input"},
		{user(`"a"`) + `, "tools": [{"type": "bash_20250124", "name": "bash"}]`, "tools[0].type", "bash_20250124"},
		{user(`"a"`) + `, "tools": [{"input_schema": {}}]`, "tools[0].name", "Missing"}, {user(`"a"`) + `, "tools": [{"name": "f"}]`, "tools[0].input_schema", "Missing"},
		{user(`"a"`) + `, "tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}]`, "tools[1].name", "unique"},
		{user(`"a"`) + `, "tool_choice": "auto"`, "tool_choice", "object"}, {user(`"a"`) + `, "tool_choice": {"type": "required"}`, "tool_choice.type", "required"},
		{user(`"a"`) + `, "tool_choice": {"type": "any"}`, "tool_choice", "is empty or missing"}, {user(`"a"`) + `, "tool_choice": {"type": "tool", "name": "g"}`, "tool_choice.name", `"g"`},
		{user(`"a"`) + `, "mcp_servers": [{"url": "a"}]`, "mcp_servers", "tools"}, {user(`"a"`) + `, "container": "a"`, "container", "no code"},
		{user(`"a"`) + `, "output_config": {"format": {"type": "json_schema", "schema": {"$dynamicRef": "#x"}}}`, "output_config.format.schema.$dynamicRef", "cannot be enforced"},
	} {
		body := `{"max_tokens": 9`
		if c[0] != "" {
			body += ", " + c[0]
		}
		status, e := s.object("POST", messagesPath, body+"}")
		if message, _ := at(e, "error", "message").(string); status != 400 || at(e, "error", "type") != "invalid_request_error" || !strings.Contains(message, "'"+c[1]+"'") || !strings.Contains(message, c[2]) {
			t.Errorf("%s: %d %v, want %s and %q", c[0], status, e, c[1], c[2])
		}
	}
	for _, fields := range []string{user(`"a"`), user(`"a"`) + `, "max_tokens": 0`} {
		if status, e := s.object("POST", messagesPath, "{"+fields+"}"); status != 400 || !strings.Contains(at(e, "error", "message").(string), "'max_tokens'") {
			t.Errorf("%s: %d %v", fields, status, e)
		}
	}
}

// TestAnEmptyListOfAUserIsNoMessage: it was dropped, so that the last message of the assistant was
// continued, or the error said that there were no messages.
func TestAnEmptyListOfAUserIsNoMessage(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	for messages, want := range map[string]string{
		`{"role": "user", "content": []}`: "messages[0].content",
		`{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": []}`: "messages[2].content",
	} {
		status, e := s.object("POST", messagesPath, `{"max_tokens": 3, "messages": [`+messages+`]}`)
		if message, _ := at(e, "error", "message").(string); status != 400 || !strings.Contains(message, "'"+want+"': it is empty") {
			t.Errorf("%s: %d %v, want %s", messages, status, e, want)
		}
	}
}

// TestAListOfContentWasDecodedWhole: memory was taken for all elements of a user's content before the
// first one was found to be wrong.
func TestAListOfContentWasDecodedWhole(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	body := `{"max_tokens": 3, "messages": [{"role": "user", "content": [1` + strings.Repeat(",1", 1<<20) + `]}]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	status, e := s.object("POST", messagesPath, body)
	runtime.ReadMemStats(&after)
	if message, _ := at(e, "error", "message").(string); status != 400 || !strings.Contains(message, "'messages[0].content[0]'") {
		t.Errorf("%d %v, want an error of the first element", status, e)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16*uint64(len(body)) {
		t.Errorf("a body of %d bytes took %d", len(body), took)
	}
}

// TestMessagesPrompts: a request has the prompt of the same chat.
func TestMessagesPrompts(t *testing.T) {
	s := serve(t, hermes(t))
	user := []obj{{"role": "user", "content": "Hi"}}
	for name, c := range map[string][2]obj{
		"system": {{"system": []obj{{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}}, "messages": user},
			{"messages": []obj{{"role": "system", "content": "Be\nbrief."}, user[0]}}},
		"a later system message": {{"system": "One.", "messages": append(user, obj{"role": "system", "content": "Two."})},
			{"messages": []obj{{"role": "system", "content": "One."}, user[0], {"role": "system", "content": "Two."}}}},
		"thinking off":          {{"thinking": obj{"type": "disabled"}, "messages": user}, {"messages": user, "chat_template_kwargs": obj{"enable_thinking": false}}},
		"thinking on":           {{"max_tokens": 9, "thinking": obj{"type": "enabled", "budget_tokens": 5}, "messages": user}, {"messages": user, "chat_template_kwargs": obj{"enable_thinking": true}}},
		"effort":                {{"output_config": obj{"effort": "max"}, "messages": user}, {"messages": user, "reasoning_effort": "high"}},
		"turns that are joined": {{"messages": []obj{user[0], {"role": "user", "content": []obj{{"type": "text", "text": "ho"}}}}}, {"messages": []obj{{"role": "user", "content": "Hi\nho"}}}},
		"prefill": {{"messages": append(user, obj{"role": "assistant", "content": "We"})},
			{"messages": append(user, obj{"role": "assistant", "content": "We"}), "add_generation_prompt": false, "continue_final_message": true}},
		"a failed call": {{"messages": append(user, obj{"role": "assistant", "content": []obj{{"type": "redacted_thinking", "data": "x"}, {"type": "tool_use", "id": "c", "name": "f", "input": obj{}}}},
			obj{"role": "user", "content": []obj{{"type": "tool_result", "tool_use_id": "c", "content": "gone", "is_error": true}}})},
			{"messages": append(user, obj{"role": "assistant", "content": "", "tool_calls": []obj{{"id": "c", "type": "function", "function": obj{"name": "f", "arguments": "{}"}}}},
				obj{"role": "tool", "tool_call_id": "c", "name": "f", "content": "Error: gone"})}},
	} {
		c[0]["max_tokens"], c[1]["max_tokens"] = 9, 1
		status, r := s.object("POST", messagesPath, c[0])
		chatStatus, same := s.object("POST", "/v1/chat/completions", c[1])
		if status != 200 || chatStatus != 200 || at(r, "usage", "input_tokens") != at(same, "usage", "prompt_tokens") {
			t.Errorf("%s: %d %v; as a chat %d %v", name, status, r, chatStatus, same)
		}
	}
}

// TestDocumentsOfTextWereRejected: a document whose source is text was a 400 that said that the model reads text only.
func TestDocumentsOfTextWereRejected(t *testing.T) {
	s := serve(t, hermes(t))
	document := func(source obj) obj {
		return obj{"type": "document", "title": "T", "context": "C", "citations": obj{"enabled": false}, "source": source}
	}
	_, want := s.object("POST", messagesPath, obj{"max_tokens": 1, "messages": []obj{{"role": "user", "content": "T\nC\nOne\ntwo\nWhat?"}}})
	for _, source := range []obj{{"type": "text", "media_type": "text/plain", "data": "One\ntwo"}, {"type": "content", "content": "One\ntwo"},
		{"type": "content", "content": []obj{{"type": "text", "text": "One"}, {"type": "text", "text": "two"}}}} {
		status, got := s.object("POST", messagesPath, obj{"max_tokens": 1, "messages": []obj{{"role": "user", "content": []obj{document(source), {"type": "text", "text": "What?"}}}}})
		if status != http.StatusOK || at(got, "usage", "input_tokens") != at(want, "usage", "input_tokens") || at(want, "usage", "input_tokens") == nil {
			t.Errorf("%v: %d %v, want the tokens of %v", source, status, got, want)
		}
	}
}

// TestForcedToolsOfMessages: a random model calls the tools that it must, with inputs that satisfy the schemas.
func TestForcedToolsOfMessages(t *testing.T) {
	m := generatetest.Speaking(t, generatetest.Speaker{Template: notations["reasoning"], Special: []string{"<think>", "</think>"}}, engine.Options{})
	e := engine.New(&enginetest.Model{Width: m.Tokenizer.VocabSize(), MaxLen: 8192}, engine.Options{})
	t.Cleanup(e.Close)
	holder.SetEngine(m, e)
	s := serve(t, m)
	tools := []obj{{"name": "get_weather", "input_schema": json.RawMessage(weatherSchema)}, {"name": "get_time", "input_schema": json.RawMessage(timeSchema)}}
	for _, choice := range []obj{{"type": "any"}, {"type": "any", "disable_parallel_tool_use": true}, {"type": "tool", "name": "get_time", "disable_parallel_tool_use": true}} {
		ended := 0
		for seed := range 4 {
			r := s.message(hi(obj{"tools": tools, "tool_choice": choice, "max_tokens": 4000, "seed": seed, "temperature": 1}))
			if r["stop_reason"] == "max_tokens" {
				continue
			}
			ended++
			calls := 0
			for _, b := range r["content"].([]any) {
				if at(b, "type") != "tool_use" {
					continue
				}
				calls++
				if fault := callFault(at(b, "name").(string), mustJSON(t, at(b, "input"))); fault != "" || choice["name"] != nil && at(b, "name") != choice["name"] {
					t.Errorf("%v: %s in %v", choice, fault, b)
				}
			}
			if r["stop_reason"] != "tool_use" || calls == 0 || choice["disable_parallel_tool_use"] == true && calls > 1 {
				t.Errorf("%v: %d calls, %v", choice, calls, r["stop_reason"])
			}
		}
		if ended == 0 {
			t.Errorf("%v: no answer ended", choice)
		}
	}
}

// TestMessagesWithASchema: output_config.format constrains the text.
func TestMessagesWithASchema(t *testing.T) {
	s := serveDemo(t)
	format := obj{"type": "json_schema", "schema": obj{"type": "object", "properties": obj{"hot": obj{"type": "boolean"}}, "required": []string{"hot"}, "additionalProperties": false}}
	for _, more := range []obj{{"output_config": obj{"format": format}}, {"output_format": format}} {
		var v struct{ Hot *bool }
		r := s.message(hi(more))
		if text, _ := at(r, "content", 0, "text").(string); json.Unmarshal([]byte(text), &v) != nil || v.Hot == nil {
			t.Errorf("%v", r)
		}
	}
}

// TestCollectedMessagesReserveMemory: an answer that is collected waits for memory and fails without it; a stream
// keeps nothing. Errors for a full server have Anthropic's status.
func TestCollectedMessagesReserveMemory(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 1 << 17, Pages: 1 << 17}, engine.Options{})
	s := messages.New(generate.NewModels(m))
	h := wire.NewMemory(256<<10, nil).Limit(func(*http.Request) wire.ErrorWriter { return messages.WriteError })(http.HandlerFunc(s.Create))
	for _, c := range []struct {
		tokens, want int
		stream       bool
	}{{20, 200, false}, {12000, 529, false}, {12000, 200, true}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", messagesPath, strings.NewReader(
			fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "ignore_eos": true, "max_tokens": %d, "stream": %t}`, c.tokens, c.stream))))
		text := w.Body.String()
		if w.Code != c.want || c.want == 529 && (!strings.Contains(text, "overloaded_error") || w.Header().Get("Retry-After") == "") || c.stream && !strings.HasSuffix(text, "{\"type\":\"message_stop\"}\n\n") {
			t.Errorf("%+v: %d %.300s", c, w.Code, text)
		}
	}
}

// TestARequestOfClaudeCode: a request as Claude Code 2.1.330 sends it, with texts of our own: several system
// blocks with cache_control, a system message after the user's, adaptive thinking without its text, effort,
// context management, betas, and then the result of its call.
func TestARequestOfClaudeCode(t *testing.T) {
	s := serve(t, hermes(t))
	cached := obj{"type": "ephemeral"}
	ask := obj{"role": "user", "content": []obj{{"type": "text", "text": "<system-reminder>\nNothing.\n</system-reminder>"}, {"type": "text", "text": "What is the weather?"}}}
	place := obj{"role": "system", "content": []obj{{"type": "text", "text": "# Environment\nA test.", "cache_control": cached}}}
	body := obj{"model": "fake", "messages": []obj{ask, place},
		"system":   []obj{{"type": "text", "text": "x-header: 1"}, {"type": "text", "text": "You are an agent.", "cache_control": cached}},
		"tools":    schemaTool,
		"metadata": obj{"user_id": "{}"}, "max_tokens": 32000, "thinking": obj{"type": "adaptive", "display": "omitted"},
		"context_management": obj{"edits": []obj{{"type": "clear_thinking_20251015", "keep": "all"}}}, "output_config": obj{"effort": "high"}}
	r := assembled(t, s.messageEvents(body))
	if r["stop_reason"] != "tool_use" || at(r, "content", 0, "thinking") != "" || at(r, "content", 2, "input", "city") != "Oslo" {
		t.Fatalf("%v", r)
	}
	result := func(i int) obj {
		return obj{"type": "tool_result", "tool_use_id": at(r, "content", i, "id"), "content": "rain", "is_error": false, "cache_control": cached}
	}
	body["messages"] = []any{ask, place, obj{"role": "assistant", "content": r["content"]}, obj{"role": "user", "content": []obj{result(2), result(3)}}}
	if r := assembled(t, s.messageEvents(body)); r["stop_reason"] != "tool_use" {
		t.Errorf("%v", r)
	}
}
