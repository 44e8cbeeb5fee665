package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestResponsesNameWhatIsWrong: each wrong field is a 400 with its path and, where it is of a service, its name.
func TestResponsesNameWhatIsWrong(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	for _, c := range [][3]string{ // a body, the parameter at fault, a part of the message
		{`{}`, "input", "Missing"}, {`{"input": []}`, "input", "Missing"}, {`{"input": 3}`, "input", "string or a list"}, {`{"input": [3]}`, "input[0]", "object"},
		{`{"input": [{}]}`, "input[0].type", "Missing"}, {`{"input": [{"type": "web_search_call"}]}`, "input[0].type", "web_search_call"},
		{`{"input": [{"role": "user"}]}`, "input[0].content", "Missing"}, {`{"input": [{"role": "tool", "content": "x"}]}`, "input[0].role", "tool"},
		{`{"input": [{"content": "x"}]}`, "input[0].role", "Missing"}, {`{"input": [{"role": "user", "content": [{"text": "x"}]}]}`, "input[0].content[0].type", "Missing"},
		{`{"input": [{"role": "user", "content": [{"type": "input_text"}]}]}`, "input[0].content[0].text", "Missing"},
		{`{"input": [{"role": "user", "content": [{"type": "input_text", "text": 3}]}]}`, "input[0].content[0].text", "string"},
		{`{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}`, "input[0].content[0].type", "input_image"},
		{`{"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}`, "input[0].call_id", "Missing"},
		{`{"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}`, "input[0].name", "Missing"},
		{`{"input": [{"type": "function_call_output", "output": "x"}]}`, "input[0].call_id", "Missing"},
		{`{"input": [{"type": "function_call_output", "call_id": "c"}]}`, "input[0].output", "Missing"},
		{`{"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}`, "input[0].call_id", "No tool call found"},
		{`{"input": [{"type": "item_reference", "id": "msg_x"}]}`, "input[0].id", "not found"}, {`{"input": [{"id": "msg_x"}]}`, "input[0].id", "not found"},
		{`{"input": [{"type": "reasoning", "summary": [{"type": "x"}]}]}`, "input[0].summary[0].type", "reasoning_text"},
		{`{"input": "a", "instructions": 3}`, "instructions", "string"}, {`{"input": "a", "max_output_tokens": 0}`, "max_output_tokens", "between"},
		{`{"input": "a", "tools": [{"type": "web_search"}]}`, "tools[0].type", "web_search"}, {`{"input": "a", "tools": [{"type": "mcp", "server_label": "x"}]}`, "tools[0].type", "mcp"},
		{`{"input": "a", "tools": [{"name": "f"}]}`, "tools[0].type", "Missing"}, {`{"input": "a", "tools": [{"type": "function"}]}`, "tools[0].name", "Missing"},
		{`{"input": "a", "tools": [{"type": "function", "name": "f", "parameters": 3}]}`, "tools[0].parameters", "object"},
		{`{"input": "a", "tool_choice": "maybe"}`, "tool_choice", "maybe"}, {`{"input": "a", "tool_choice": "required"}`, "tool_choice", "is empty or missing"},
		{`{"input": "a", "tool_choice": {"type": "function", "name": "g"}}`, "tool_choice.name", `"g"`}, {`{"input": "a", "tool_choice": {"type": "file_search"}}`, "tool_choice.type", "file_search"},
		{`{"input": "a", "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}}`, "tool_choice.tools[0].name", `"g"`},
		{`{"input": "a", "tool_choice": {"type": "allowed_tools", "mode": "none", "tools": []}}`, "tool_choice.mode", "auto"},
		{`{"input": "a", "text": {"format": {"type": "xml"}}}`, "text.format.type", "xml"}, {`{"input": "a", "text": {"format": {"type": "json_schema", "name": "x"}}}`, "text.format.schema", "Missing"},
		{`{"input": "a", "text": {"format": {"type": "json_schema", "schema": {}}}}`, "text.format.name", "Missing"},
		{`{"input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}}}}}`, "text.format.schema.properties.a.$dynamicRef", "cannot be enforced"},
		{`{"input": "a", "text": {"verbosity": "loud"}}`, "text.verbosity", "expected"},
		{`{"input": "a", "background": true}`, "background", "not supported"}, {`{"input": "a", "conversation": "c"}`, "conversation", "previous_response_id"},
		{`{"input": "a", "prompt": {"id": "p"}}`, "prompt", "instructions"}, {`{"messages": []}`, "input", "Missing"}, {`{"messages": [{"role": "user"}]}`, "messages", "use input"},
		{`{"input": "a", "max_tokens": 5}`, "max_tokens", "max_output_tokens"}, {`{"input": "a", "response_format": {"type": "json_object"}}`, "response_format", "text.format"},
		{`{"input": "a", "include": ["x"]}`, "include", `"x"`}, {`{"input": "a", "include": "x"}`, "include", "list"}, {`{"input": "a", "truncation": "some"}`, "truncation", "auto"},
		{`{"input": "a", "metadata": {"b": "c", "a": 1}}`, "metadata.a", "expected a string, but got an integer"}, {`{"input": "a", "metadata": [1]}`, "metadata", "expected an object, but got a list"}, {`{"input": "a", "metadata": {"a": "` + strings.Repeat("x", 513) + `"}}`, "metadata", "512"},
		{`{"input": "a", "top_logprobs": 21}`, "top_logprobs", "20"}, {`{"input": "a", "stream_options": {}}`, "stream_options", "stream"}, {`{"input": "a", "n": 2}`, "n", "one answer"},
		{`{"input": "a", "model": "nope"}`, "", "nope"}, {`{"input": "a", "temperature": 3}`, "temperature", "between"}, {`{"input": "a", "reasoning": "low"}`, "reasoning", "object"},
	} {
		status, r := s.object("POST", responsesPath, c[0])
		param, _ := at(r, "error", "param").(string)
		message, _ := at(r, "error", "message").(string)
		if want := 400; status != want && c[1] != "" || param != c[1] || !strings.Contains(message, c[2]) || len(r["error"].(map[string]any)) != 4 {
			t.Errorf("%s: %d, %s: %s; want %s with %q", c[0], status, param, message, c[1], c[2])
		}
	}
}

// TestResponsesIgnoreParametersWithoutEffect: values that clients send without a meaning.
func TestResponsesIgnoreParametersWithoutEffect(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	for _, more := range []string{`"background": false`, `"conversation": null`, `"tools": []`, `"tools": null, "tool_choice": "auto"`, `"tool_choice": "none"`, `"text": {"format": {"type": "text"}, "verbosity": "medium"}`,
		`"include": []`, `"include": ["reasoning.encrypted_content", "file_search_call.results"]`, `"reasoning": {"effort": null, "summary": "auto"}`, `"reasoning": {}`, `"service_tier": "auto"`,
		`"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h"`, `"max_tool_calls": 3`, `"parallel_tool_calls": true`, `"metadata": null`, `"instructions": null`,
		`"previous_response_id": null`, `"stream": false`, `"truncation": "auto"`, `"unknown": 1`, `"stop": ["zzz"]`, `"seed": 3`, `"max_output_tokens": 100000`} {
		status, r := s.object("POST", responsesPath, `{"input": "a", "ignore_eos": false, "max_output_tokens": 3, `+more+`}`)
		if status != 200 {
			t.Errorf("%s: %d %v", more, status, r)
		}
	}
}

func TestResponsesRepeatTheRequest(t *testing.T) {
	s := serve(t, hermes(t))
	choice := obj{"type": "allowed_tools", "mode": "auto", "tools": []any{obj{"type": "function", "name": "weather"}}}
	body := obj{"input": "Hi", "instructions": "Be kind.", "tools": []obj{{"type": "function", "name": "weather", "description": "d", "parameters": obj{"type": "object"}, "strict": false},
		{"type": "function", "name": "other"}}, "tool_choice": choice, "parallel_tool_calls": false, "metadata": obj{"a": "b"}, "max_output_tokens": 300, "max_tool_calls": 2, "temperature": 0,
		"top_p": 0.5, "presence_penalty": 0.25, "frequency_penalty": 0.5, "truncation": "auto", "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
		"reasoning": obj{"effort": "low", "summary": "auto"}, "text": obj{"format": obj{"type": "text"}}}
	r := s.respond(maps.Clone(body))
	for key, want := range body {
		switch key {
		case "input", "tools", "text":
			continue
		}
		if got := r[key]; mustJSON(t, got) != mustJSON(t, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if len(r["tools"].([]any)) != 2 || at(r, "tools", 0, "description") != "d" || at(r, "tools", 1, "parameters") != nil {
		t.Errorf("tools %v", r["tools"])
	}
	if n := len(r["output"].([]any)); n != 3 || at(r, "output", 2, "name") != "weather" { // reasoning, text and one call
		t.Errorf("with parallel_tool_calls false: %v", r["output"])
	}
}

func TestResponsesStructuredText(t *testing.T) {
	s := serveDemo(t)
	schema := obj{"type": "object", "properties": obj{"city": obj{"enum": []string{"Oslo", "Rome"}}, "hot": obj{"type": "boolean"}}, "required": []string{"city", "hot"}, "additionalProperties": false}
	r := s.respond(obj{"input": "Where?", "text": obj{"format": obj{"type": "json_schema", "name": "place", "schema": schema, "strict": true}}})
	var place struct {
		City string
		Hot  *bool
	}
	if err := json.Unmarshal([]byte(says(r)), &place); err != nil || place.City != "Oslo" && place.City != "Rome" || place.Hot == nil {
		t.Errorf("%q: %v", says(r), err)
	}
	if at(r, "text", "format", "name") != "place" {
		t.Errorf("text %v", r["text"])
	}
	r = s.respond(obj{"input": "Where?", "text": obj{"format": obj{"type": "json_object"}}, "max_output_tokens": 200, "temperature": 0})
	if text := says(r); !strings.HasPrefix(text, "{") || r["status"] == "completed" && !json.Valid([]byte(text)) {
		t.Errorf("%q", text)
	}
}

// TestTruncatedResponsesKeepTheLastTurns: with truncation auto the oldest turns that do not fit are dropped.
func TestTruncatedResponsesKeepTheLastTurns(t *testing.T) {
	s := serveDemo(t)
	turns := func(n int) []any {
		items := []any{obj{"role": "system", "content": "Be kind."}}
		for i := range n {
			items = append(items, obj{"role": "user", "content": fmt.Sprintf("%d %s", i, strings.Repeat("the boat on the river ", 20))}, obj{"role": "assistant", "content": "Yes."})
		}
		return append(items, obj{"role": "user", "content": "Hi"})
	}
	body := obj{"input": turns(60), "max_output_tokens": 16, "temperature": 0}
	if status, e := s.object("POST", responsesPath, body); status != 400 || at(e, "error", "code") != "context_length_exceeded" || at(e, "error", "param") != "input" {
		t.Fatalf("%d %v", status, e)
	}
	body["truncation"] = "auto"
	r := s.respond(body)
	tokens := int(mustInt(t, at(r, "usage", "input_tokens")))
	if r["status"] == "failed" || tokens > 2048-16 || tokens < 1800 {
		t.Errorf("a prompt of %d tokens of 2048", tokens)
	}
	short := s.respond(obj{"input": turns(2), "max_output_tokens": 16, "temperature": 0, "truncation": "auto"})
	same := s.respond(obj{"input": turns(2), "max_output_tokens": 16, "temperature": 0})
	if says(short) != says(same) || at(short, "usage", "input_tokens") != at(same, "usage", "input_tokens") {
		t.Errorf("a conversation that fits was truncated: %v", short)
	}
}

func TestResponsesLogProbs(t *testing.T) {
	s := serveDemo(t)
	body := obj{"input": "Hi", "max_output_tokens": 6, "temperature": 0, "include": []string{"message.output_text.logprobs"}, "top_logprobs": 2}
	r := s.respond(maps.Clone(body))
	probs := at(r, "output", 0, "content", 0, "logprobs").([]any)
	text := ""
	for _, p := range probs {
		text += at(p, "token").(string)
		if at(p, "logprob") == nil || at(p, "bytes") == nil || len(at(p, "top_logprobs").([]any)) != 2 {
			t.Errorf("token %v", p)
		}
	}
	if text != says(r) || text == "" {
		t.Errorf("tokens %q of %q", text, says(r))
	}
	deltas := 0
	for _, e := range s.events(body) {
		if e.name == "response.output_text.delta" {
			deltas += len(e.data["logprobs"].([]any))
		}
	}
	if deltas != len(probs) {
		t.Errorf("%d log-probabilities in deltas, %d at once", deltas, len(probs))
	}
	delete(body, "include")
	delete(body, "stream")
	if r := s.respond(body); len(at(r, "output", 0, "content", 0, "logprobs").([]any)) != 0 {
		t.Errorf("log-probabilities that were not asked for: %v", r["output"])
	}
}

// TestCompactIsNoMethodOfAResponse: POST /v1/responses/compact was a 405, as if compact were a response's id.
func TestCompactIsNoMethodOfAResponse(t *testing.T) {
	s := serveDemo(t)
	status, r := s.object("POST", "/v1/responses/compact", obj{"input": "Hi"})
	if why, _ := at(r, "error", "message").(string); status != 404 || !strings.Contains(why, "not supported") || !strings.Contains(why, "summary") {
		t.Errorf("got %d %v, want a 404 that says what to do", status, r)
	}
}
