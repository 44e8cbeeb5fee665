package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/generatetest"
)

const (
	completions = "/v1/completions"
	chat        = "/v1/chat/completions"
)

// badInputs are sent to the demo model. body is JSON, or text as it is.
var badInputs = []struct {
	name, path string
	body       any
	status     int
	param      any
	code       any
	message    string // a part of it
}{
	{"no JSON at a place", completions, `{"prompt": "a",}`, 400, nil, nil, "(byte 16 of 16)"},
	{"max_tokens beyond 64 bits", completions, `{"prompt": "a", "max_tokens": 99999999999999999999}`, 400, "max_tokens", nil, "is not between 0 and 2147483647"},
	{"seed beyond 64 bits", completions, `{"prompt": "a", "seed": 99999999999999999999}`, 400, "seed", nil, "does not fit 64 bits"},
	{"prompt of no ids, in words", completions, `{"prompt": [[]]}`, 400, "prompt", nil, "Invalid value for 'prompt': it is empty."},
	{"no JSON", chat, "{oops", 400, nil, nil, "could not parse the JSON body"},
	{"nothing", completions, "", 400, nil, nil, "could not parse the JSON body"},
	{"two values", completions, "{} {}", 400, nil, nil, "could not parse the JSON body"},
	{"no object", completions, "[1]", 400, nil, nil, "must be an object, it is a list"},
	{"null", completions, "null", 400, nil, nil, "must be an object, it is null"},
	{"unknown model", chat, obj{"model": "nope", "messages": hello}, 404, nil, "model_not_found", "`nope` does not exist"},
	{"model is a number", chat, obj{"model": 3}, 400, "model", nil, "expected a string, but got an integer"},

	{"no prompt", completions, obj{}, 400, "prompt", nil, "Missing required parameter: 'prompt'"},
	{"prompt null", completions, obj{"prompt": nil}, 400, "prompt", nil, "Missing required parameter"},
	{"prompt is a number", completions, obj{"prompt": 3}, 400, "prompt", nil, "expected a string, a list"},
	{"prompt is mixed", completions, `{"prompt": ["a", 3]}`, 400, "prompt", nil, "expected a string, a list"},
	{"prompt with null", completions, `{"prompt": [3, null]}`, 400, "prompt", nil, "expected a string, a list"},
	{"prompts with null", completions, `{"prompt": ["a", null]}`, 400, "prompt", nil, "expected a string, a list"},
	{"prompt of no prompts", completions, obj{"prompt": []int{}}, 400, "prompt", nil, "0 prompts"},
	{"prompt of no ids", completions, `{"prompt": [[]]}`, 400, "prompt", nil, "empty"},
	{"prompt of fractions", completions, `{"prompt": [1.5]}`, 400, "prompt", nil, "expected a string, a list"},
	{"id too high", completions, obj{"prompt": []int{5000}}, 400, "prompt", nil, "id 5000 at 0 is outside the vocabulary of 1024"},
	{"id negative", completions, obj{"prompt": []int{-1}}, 400, "prompt", nil, "outside the vocabulary"},
	{"id beyond 32 bits", completions, `{"prompt": [4294967297]}`, 400, "prompt", nil, "expected a string, a list"},
	{"prompt too long", completions, obj{"prompt": strings.Repeat("the river ", 3000)}, 400, "prompt", "context_length_exceeded", "maximum context length is 2048 tokens"},
	{"answer too long", completions, obj{"prompt": "a", "max_tokens": 4000}, 400, "prompt", "context_length_exceeded", "maximum context length is 2048 tokens"},
	{"suffix", completions, obj{"prompt": "a", "suffix": "b"}, 400, "suffix", nil, "not supported"},
	{"best_of", completions, obj{"prompt": "a", "best_of": 3}, 400, "best_of", nil, "unless it equals 'n'"},
	{"logprobs too many", completions, obj{"prompt": "a", "logprobs": 21}, 400, "logprobs", nil, "not between 0 and 20"},
	{"logprobs a boolean", completions, obj{"prompt": "a", "logprobs": true}, 400, "logprobs", nil, "expected an integer, but got a boolean"},
	{"echo a string", completions, obj{"prompt": "a", "echo": "yes"}, 400, "echo", nil, "expected a boolean, but got a string"},
	{"max_tokens negative", completions, obj{"prompt": "a", "max_tokens": -1}, 400, "max_tokens", nil, "not between 0"},
	{"max_tokens a fraction", completions, `{"prompt": "a", "max_tokens": 2.5}`, 400, "max_tokens", nil, "expected an integer, but got a number"},
	{"max_tokens huge", completions, `{"prompt": "a", "max_tokens": 1e400}`, 400, "max_tokens", nil, "expected an integer"},

	{"temperature a string", completions, obj{"prompt": "a", "temperature": "hot"}, 400, "temperature", nil, "expected a number, but got a string"},
	{"temperature too high", completions, obj{"prompt": "a", "temperature": 2.1}, 400, "temperature", nil, "2.1 is not between 0 and 2"},
	{"temperature negative", completions, obj{"prompt": "a", "temperature": -0.1}, 400, "temperature", nil, "not between 0 and 2"},
	{"top_p too high", completions, obj{"prompt": "a", "top_p": 1.1}, 400, "top_p", nil, "not between 0 and 1"},
	{"top_k too low", completions, obj{"prompt": "a", "top_k": -2}, 400, "top_k", nil, "not between -1"},
	{"min_p too high", completions, obj{"prompt": "a", "min_p": 2}, 400, "min_p", nil, "not between 0 and 1"},
	{"presence_penalty", completions, obj{"prompt": "a", "presence_penalty": 3}, 400, "presence_penalty", nil, "not between -2 and 2"},
	{"frequency_penalty", completions, obj{"prompt": "a", "frequency_penalty": -3}, 400, "frequency_penalty", nil, "not between -2 and 2"},
	{"repetition_penalty", completions, obj{"prompt": "a", "repetition_penalty": 0}, 400, "repetition_penalty", nil, "must be above 0"},
	{"min_tokens beyond max_tokens", completions, obj{"prompt": "a", "min_tokens": 9, "max_tokens": 8}, 400, "min_tokens", nil, "9 is more than the 8"},
	{"min_tokens", completions, obj{"prompt": "a", "min_tokens": -1}, 400, "min_tokens", nil, "not between 0"},
	{"n zero", completions, obj{"prompt": "a", "n": 0}, 400, "n", nil, "not between 1 and 128"},
	{"n too many", completions, obj{"prompt": "a", "n": 129}, 400, "n", nil, "not between 1 and 128"},
	{"seed a string", completions, obj{"prompt": "a", "seed": "x"}, 400, "seed", nil, "expected an integer"},
	{"stop a number", completions, obj{"prompt": "a", "stop": 3}, 400, "stop", nil, "a string or a list of strings"},
	{"stop empty", completions, obj{"prompt": "a", "stop": []string{"x", ""}}, 400, "stop", nil, "cannot be empty"},
	{"logit_bias a list", completions, obj{"prompt": "a", "logit_bias": []int{1}}, 400, "logit_bias", nil, "an object of token ids"},
	{"logit_bias of a word", completions, obj{"prompt": "a", "logit_bias": obj{"river": 1}}, 400, "logit_bias", nil, "not one of the 1024 token ids"},
	{"logit_bias too high an id", completions, obj{"prompt": "a", "logit_bias": obj{"1024": 1}}, 400, "logit_bias", nil, "not one of the 1024 token ids"},
	{"logit_bias too strong", completions, obj{"prompt": "a", "logit_bias": obj{"10": 101}}, 400, "logit_bias", nil, "not between -100 and 100"},
	{"stop_token_ids", completions, obj{"prompt": "a", "stop_token_ids": "x"}, 400, "stop_token_ids", nil, "a list of token ids"},
	{"allowed_token_ids", completions, obj{"prompt": "a", "allowed_token_ids": []int{5000}}, 400, "allowed_token_ids", nil, "5000 is not one of the 1024 token ids"},
	{"stream a string", completions, obj{"prompt": "a", "stream": "yes"}, 400, "stream", nil, "expected a boolean"},
	{"stream_options alone", completions, obj{"prompt": "a", "stream_options": obj{"include_usage": true}}, 400, "stream_options", nil, "only with 'stream'"},
	{"stream_options a list", completions, obj{"prompt": "a", "stream": true, "stream_options": []int{}}, 400, "stream_options", nil, "expected an object"},
	{"include_usage", completions, obj{"prompt": "a", "stream": true, "stream_options": obj{"include_usage": 1}}, 400, "stream_options.include_usage", nil, "expected a boolean"},
	{"beams", completions, obj{"prompt": "a", "use_beam_search": true}, 400, "use_beam_search", nil, "not supported"},
	{"a schema of an unknown type", completions, obj{"prompt": "a", "guided_json": obj{"type": "objct"}}, 400, "guided_json.type", nil, `got "objct", want one of null, boolean`}, // was Go's notation of a list
	{"guided", completions, obj{"prompt": "a", "guided_regex": "a++"}, 400, "guided_regex", nil, "possessive"},

	{"no messages", chat, obj{}, 400, "messages", nil, "Missing required parameter: 'messages'"},
	{"messages a string", chat, obj{"messages": "hi"}, 400, "messages", nil, "expected a list of messages, but got a string"},
	{"messages empty", chat, obj{"messages": []int{}}, 400, "messages", nil, "at least one message"},
	{"message a string", chat, obj{"messages": []string{"hi"}}, 400, "messages[0]", nil, "expected an object"},
	{"message without a role", chat, obj{"messages": []obj{{"content": "hi"}}}, 400, "messages[0].role", nil, "Missing required parameter"},
	{"role a number", chat, obj{"messages": []obj{{"role": 1, "content": "hi"}}}, 400, "messages[0].role", nil, "expected a string"},
	{"role unknown to the template", chat, obj{"messages": []obj{{"role": "critic", "content": "hi"}}}, 400, "messages", nil, "not critic"},
	{"content a number", chat, obj{"messages": []obj{{"role": "user", "content": 3}}}, 400, "messages[0].content", nil, "a string or a list of parts"},
	{"part a string", chat, obj{"messages": []obj{{"role": "user", "content": []string{"hi"}}}}, 400, "messages[0].content[0]", nil, "expected an object"},
	{"part an image", chat, obj{"messages": []obj{{"role": "user", "content": []obj{{"type": "image_url", "image_url": obj{"url": "x"}}}}}}, 400, "messages[0].content[0].type", nil, "'text' only"},
	{"part without text", chat, obj{"messages": []obj{{"role": "user", "content": []obj{{"type": "text"}}}}}, 400, "messages[0].content[0].text", nil, "expected a string"},
	{"tool_calls an object", chat, obj{"messages": []obj{{"role": "assistant", "tool_calls": obj{}}}}, 400, "messages[0].tool_calls", nil, "expected a list"},
	{"call a string", chat, obj{"messages": calling("f")}, 400, "messages[0].tool_calls[0]", nil, "expected an object"},
	{"call without a function", chat, obj{"messages": calling(obj{"id": "1", "type": "function"})}, 400, "messages[0].tool_calls[0].function", nil, "Missing required parameter: 'messages[0].tool_calls[0].function'."},
	{"call of a number", chat, obj{"messages": calling(obj{"function": 3})}, 400, "messages[0].tool_calls[0].function", nil, "expected an object"},
	{"call without a name", chat, obj{"messages": calling(obj{"function": obj{"arguments": "{}"}})}, 400, "messages[0].tool_calls[0].function.name", nil, "Missing required parameter"},
	{"call with arguments of a list", chat, obj{"messages": calling(obj{"function": obj{"name": "f", "arguments": []int{}}})}, 400, "messages[0].tool_calls[0].function.arguments", nil, "expected a string"},
	{"call with an id of a number", chat, obj{"messages": calling(obj{"id": 1, "function": obj{"name": "f"}})}, 400, "messages[0].tool_calls[0].id", nil, "expected a string"},
	{"call of another type", chat, obj{"messages": calling(obj{"type": "retrieval", "function": obj{"name": "f"}})}, 400, "messages[0].tool_calls[0].type", nil, `expected "function"`},
	{"tool_call_id a number", chat, obj{"messages": []obj{{"role": "tool", "content": "x", "tool_call_id": 1}}}, 400, "messages[0].tool_call_id", nil, "expected a string"},
	{"reasoning a list", chat, obj{"messages": []obj{{"role": "assistant", "content": "x", "reasoning_content": []int{}}}}, 400, "messages[0].reasoning_content", nil, "expected a string"},
	{"tools an object", chat, obj{"messages": hello, "tools": obj{}}, 400, "tools", nil, "expected a list"},
	{"tool a string", chat, obj{"messages": hello, "tools": []string{"f"}}, 400, "tools[0]", nil, "expected an object"},
	{"tool without a type", chat, obj{"messages": hello, "tools": []obj{{"function": obj{"name": "f"}}}}, 400, "tools[0].type", nil, "Missing required parameter: 'tools[0].type'."},
	{"tool of another type", chat, obj{"messages": hello, "tools": []obj{{"type": "retrieval", "function": obj{"name": "f"}}}}, 400, "tools[0].type", nil, `expected "function"`},
	{"tool without a function", chat, obj{"messages": hello, "tools": []obj{{"type": "function"}}}, 400, "tools[0].function", nil, "Missing required parameter: 'tools[0].function'."},
	{"tool without a name", chat, obj{"messages": hello, "tools": []obj{{"type": "function", "function": obj{}}}}, 400, "tools[0].function.name", nil, "Missing required parameter: 'tools[0].function.name'."},
	{"tool with an empty name", chat, obj{"messages": hello, "tools": []obj{{"type": "function", "function": obj{"name": ""}}}}, 400, "tools[0].function.name", nil, "empty"},
	{"tool whose name is a number", chat, obj{"messages": hello, "tools": []obj{{"type": "function", "function": obj{"name": 7}}}}, 400, "tools[0].function.name", nil, "expected a string"},
	{"tool with parameters of a list", chat, obj{"messages": hello, "tools": []obj{{"type": "function", "function": obj{"name": "f", "parameters": []int{}}}}}, 400, "tools[0].function.parameters", nil, "Invalid type for 'tools[0].function.parameters': expected an object."},
	{"tool that may not be called", chat, obj{"messages": hello, "tool_choice": "none", "tools": []int{1}}, 400, "tools[0]", nil, "expected an object"},
	{"parallel_tool_calls a string", chat, obj{"messages": hello, "parallel_tool_calls": "no"}, 400, "parallel_tool_calls", nil, "expected a boolean"},
	{"include_reasoning a number", chat, obj{"messages": hello, "include_reasoning": 1}, 400, "include_reasoning", nil, "expected a boolean"},
	{"reasoning_effort a number", chat, obj{"messages": hello, "reasoning_effort": 1}, 400, "reasoning_effort", nil, "expected a string"},
	{"tool forced", chat, obj{"messages": hello, "tool_choice": "required"}, 400, "tool_choice", nil, "is empty or missing"},
	{"tool named", chat, obj{"messages": hello, "tool_choice": obj{"type": "function"}}, 400, "tool_choice.name", nil, "Missing"},
	{"tools allowed of none", chat, obj{"messages": hello, "tool_choice": obj{"type": "allowed_tools", "allowed_tools": obj{"mode": "auto", "tools": []obj{{"type": "function", "function": obj{"name": "g"}}}}}}, 400, "tool_choice.allowed_tools.tools[0].function", nil, `"g"`},
	{"tools allowed how", chat, obj{"messages": hello, "tool_choice": obj{"type": "allowed_tools", "allowed_tools": obj{"mode": "none"}}}, 400, "tool_choice.allowed_tools.mode", nil, "required"},
	{"tool choice of another kind", chat, obj{"messages": hello, "tool_choice": obj{"type": "retrieval"}}, 400, "tool_choice.type", nil, "allowed_tools"},
	{"tool unknown", chat, obj{"messages": hello, "tools": []obj{{"type": "function", "function": obj{"name": "f"}}}, "tool_choice": obj{"type": "function", "function": obj{"name": "g"}}}, 400, "tool_choice", nil, ""},
	{"keyword", chat, obj{"messages": hello, "json_schema": obj{"properties": obj{"a": obj{"uniqueItems": true}}}}, 400, "json_schema.properties.a.uniqueItems", nil, "cannot be enforced"},
	{"remote reference", completions, obj{"prompt": "a", "guided_json": obj{"$ref": "https://x.test/s"}}, 400, "guided_json.$ref", nil, "outside"},
	{"two constraints", completions, obj{"prompt": "a", "guided_json": obj{}, "guided_regex": "a"}, 400, "guided_regex", nil, "exclude"},
	{"left recursion", completions, obj{"prompt": "a", "grammar": "root ::= root \"a\" | \"b\""}, 400, "grammar", nil, "calls itself"},
	{"no document", completions, obj{"prompt": "a", "guided_json": false}, 400, "guided_json", nil, "no text"},
	{"schema", chat, obj{"messages": hello, "response_format": obj{"type": "json_schema"}}, 400, "response_format.json_schema", nil, "Missing"},
	{"response_format a string", chat, obj{"messages": hello, "response_format": "text"}, 400, "response_format", nil, "expected an object"},
	{"response_format without a type", chat, obj{"messages": hello, "response_format": obj{}}, 400, "response_format.type", nil, "expected a string"},
	{"top_logprobs alone", chat, obj{"messages": hello, "top_logprobs": 2}, 400, "top_logprobs", nil, "only with 'logprobs'"},
	{"top_logprobs too many", chat, obj{"messages": hello, "logprobs": true, "top_logprobs": 21}, 400, "top_logprobs", nil, "not between 0 and 20"},
	{"logprobs a number", chat, obj{"messages": hello, "logprobs": 2}, 400, "logprobs", nil, "expected a boolean"},
	{"max_tokens zero", chat, obj{"messages": hello, "max_tokens": 0}, 400, "max_tokens", nil, "not between 1"},
	{"max_completion_tokens", chat, obj{"messages": hello, "max_completion_tokens": "x"}, 400, "max_completion_tokens", nil, "expected an integer"},
	{"chat too long", chat, obj{"messages": hello, "max_tokens": 5000}, 400, "messages", "context_length_exceeded", "maximum context length"},
	{"conversation too long", chat, obj{"messages": []obj{{"role": "user", "content": strings.Repeat("the river ", 3000)}}}, 400, "messages", "context_length_exceeded", "maximum context length"},
	{"continue and generate", chat, obj{"messages": hello, "continue_final_message": true, "add_generation_prompt": true}, 400, "add_generation_prompt", nil, "exclude each other"},
	{"continue a number", chat, obj{"messages": hello, "continue_final_message": 3}, 400, "continue_final_message", nil, "a boolean or the name of a field"},
	{"kwargs a list", chat, obj{"messages": hello, "chat_template_kwargs": []int{}}, 400, "chat_template_kwargs", nil, "expected an object"},
	{"kwargs with messages", chat, obj{"messages": hello, "chat_template_kwargs": obj{"messages": 1}}, 400, "chat_template_kwargs", nil, "cannot be given"},
	{"a template", chat, obj{"messages": hello, "chat_template": "{{ 1 }}"}, 400, "chat_template", nil, "cannot bring a template"},
	{"functions", chat, obj{"messages": hello, "functions": []obj{{"name": "f"}}}, 400, "functions", nil, "use tools"},
	{"documents", chat, obj{"messages": hello, "documents": "x"}, 400, "documents", nil, "expected a list"},
	{"nested too deep", chat, `{"messages":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, 400, "messages", nil, ""},

	{"tokenize a prompt and messages", "/tokenize", obj{"prompt": "a", "messages": hello}, 400, "messages", nil, "'prompt' and 'messages' exclude each other"},
	{"tokenize nothing", "/tokenize", obj{}, 400, "prompt", nil, "'prompt' or 'messages'"},
	{"detokenize strings", "/detokenize", obj{"tokens": []string{"a"}}, 400, "tokens", nil, "a list with other items"}, // "expected a list, but got a list"
	{"detokenize a string", "/detokenize", obj{"tokens": "x"}, 400, "tokens", nil, "a list of token ids"},
}

// calling is a conversation in which the model has made calls.
func calling(calls ...any) []obj { return []obj{{"role": "assistant", "tool_calls": calls}} }

func TestBadInputs(t *testing.T) {
	s := serveDemo(t)
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			status, got := s.object("POST", c.path, c.body)
			checkError(t, status, got, c.status, c.param, c.code, c.message)
		})
	}
}

// checkError checks an error object, key by key.
func checkError(t *testing.T, status int, got obj, wantStatus int, param, code any, message string) {
	t.Helper()
	if status != wantStatus {
		t.Fatalf("status %d, want %d: %v", status, wantStatus, got)
	}
	e, _ := got["error"].(map[string]any)
	if len(got) != 1 || len(e) != 4 || !hasKey(e, "param") || !hasKey(e, "code") {
		t.Fatalf("no error object: %v", got)
	}
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	if e["type"] != kind || e["param"] != param || e["code"] != code {
		t.Errorf("type %v, param %v, code %v; want %v, %v, %v", e["type"], e["param"], e["code"], kind, param, code)
	}
	if text, _ := e["message"].(string); text == "" || !strings.Contains(text, message) {
		t.Errorf("message %q, want %q in it", text, message)
	}
}

func TestPathsAndMethods(t *testing.T) {
	s := serveDemo(t)
	for _, c := range []struct {
		method, path string
		status       int
		code         any
		message      string
	}{
		{"GET", "/v1/nope", 404, nil, "Invalid URL (GET /v1/nope)"},
		{"POST", "/nope", 404, nil, "Invalid URL (POST /nope)"},
		{"GET", "/v1/chat/completions", 405, "method_not_allowed", "Method not allowed: GET /v1/chat/completions; use POST"},
		{"DELETE", "/v1/completions", 405, "method_not_allowed", "Method not allowed"},
		{"POST", "/health", 405, "method_not_allowed", "Method not allowed"},
		{"GET", "/v1/models/nope", 404, "model_not_found", "`nope` does not exist"},
		{"GET", "/v1/models/org/nope", 404, "model_not_found", "`org/nope` does not exist"},
		{"GET", "/v1/models/", 404, nil, "Invalid URL"},
	} {
		status, got := s.object(c.method, c.path, nil)
		t.Run(c.method+" "+c.path, func(t *testing.T) { checkError(t, status, got, c.status, nil, c.code, c.message) })
	}
}

func TestBodyTooLarge(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	status, got := s.object("POST", completions, `{"prompt": "`+strings.Repeat("a", 33<<20)+`"}`)
	checkError(t, status, got, http.StatusRequestEntityTooLarge, nil, "request_too_large", "too large")
}

func TestTextWithoutATokenizerIsA400(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for _, c := range []struct {
		name, path, param, message string
		body                       obj
	}{
		{"text", completions, "prompt", "the prompt must be a list of token ids", obj{"prompt": "hi"}},
		{"chat", chat, "messages", "has no tokenizer", obj{"messages": hello}},
		{"stop", completions, "stop", "use stop_token_ids", obj{"prompt": []int{1}, "stop": "x"}},
		{"detokenize", "/detokenize", "tokens", "has no tokenizer", obj{"tokens": []int{1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, got := s.object("POST", c.path, c.body)
			checkError(t, status, got, 400, c.param, nil, c.message)
		})
	}
	m := generatetest.WithText(t, "no-chat")
	m.Chat = nil
	holder.SetEngine(m, generatetest.Engine(generatetest.Fake(t, &enginetest.Model{}, engine.Options{})))
	status, got := serve(t, m).object("POST", chat, obj{"messages": hello})
	checkError(t, status, got, 400, "messages", nil, "has no chat template")
}

func TestKeys(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "first", "second")
	for _, key := range []string{"", "third", "firs", "first "} {
		s.key = key
		want := 401
		if key == "first " { // a header's value has no space at its end
			want = 200
		}
		for _, path := range []string{"/v1/models", "/v1/models/fake", "/plan"} {
			if status, _ := s.text("GET", path, nil); status != want {
				t.Errorf("key %q: GET %s is %d, want %d", key, path, status, want)
			}
		}
	}
	s.key = "third"
	for _, path := range []string{completions, chat, "/tokenize", "/detokenize", "/v1/nope", "/nope"} {
		status, got := s.object("POST", path, obj{"prompt": []int{1}})
		t.Run(path, func(t *testing.T) { checkError(t, status, got, 401, nil, "invalid_api_key", "Incorrect API key.") })
	}
	s.key = "" // the key was called incorrect where none was sent
	status, got := s.object("POST", chat, obj{})
	checkError(t, status, got, 401, nil, "invalid_api_key", "An API key is missing: send it as")
	s.key = "third"
	for _, path := range []string{"/", "/health", "/ready", "/metrics", "/version"} {
		if status, _ := s.text("GET", path, nil); status != 200 {
			t.Errorf("GET %s is %d without a key", path, status)
		}
	}
	for _, s.key = range []string{"first", "second"} {
		if status, got := s.object("POST", completions, obj{"prompt": []int{1}}); status != 200 {
			t.Errorf("key %q: %d, %v", s.key, status, got)
		}
	}
}

func TestAnotherSchemeIsNoKey(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "first")
	for header, want := range map[string]int{"first": 401, "Basic first": 401, "Bearer": 401, "bearer first": 200, "Bearer first": 200} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", header, resp.StatusCode, want)
		}
	}
}

// TestWrongBaseURLsAreNamed: a base URL with one /v1 too many or too few, or with a slash at its end, was an invalid
// URL, and nothing said which one was meant.
func TestWrongBaseURLsAreNamed(t *testing.T) {
	s := serveDemo(t)
	for path, want := range map[string]string{
		"/v1/v1/chat/completions":     "Did you mean /v1/chat/completions?",
		"//v1/chat/completions":       "Did you mean /v1/chat/completions?",
		"/v1/chat/completions/":       "Did you mean /v1/chat/completions?",
		"/chat/completions":           "Did you mean /v1/chat/completions?",
		"/api/v1/chat/completions":    "Did you mean /v1/chat/completions?",
		"/v1/v1/messages":             "Did you mean /v1/messages?",
		"/v1/api/chat":                "Did you mean /api/chat?",
		"/v1/nothing":                 "",
		"/a/b/c/d/e/chat/completions": "",
		"/":                           "",
	} {
		status, got := s.text("POST", path, map[string]any{})
		if status != 404 && path != "/" || want == "" && strings.Contains(got, "Did you mean") || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want 404 with %q", path, status, got, want)
		}
	}
}
