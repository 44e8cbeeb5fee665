package api_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

const responsesPath = "/v1/responses"

// weatherTool is weather as responses have tools.
var weatherTool = []obj{{"type": "function", "name": "weather", "parameters": obj{"type": "object", "properties": obj{"city": obj{"type": "string"}}}}}

// event is an event of a stream.
type event struct {
	name string
	data map[string]any
}

// events posts a body with "stream", checks the form of the events and returns them.
func (s *server) events(body obj) []event {
	s.t.Helper()
	body["stream"] = true
	return s.readEvents(s.do("POST", responsesPath, body), 0)
}

// readEvents reads the events of an answer, whose numbers begin with first.
func (s *server) readEvents(r *http.Response, first int) (all []event) {
	s.t.Helper()
	if got := r.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		s.t.Fatalf("status %d, content type %q", r.StatusCode, got)
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	var name, last string
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: {"):
			e := event{name, parse(s.t, line[len("data: "):])}
			if e.data["type"] != name || at(e.data, "sequence_number") != json.Number(strconv.Itoa(first+len(all))) {
				s.t.Errorf("event %d is %s: %.200s", first+len(all), name, line)
			}
			all = append(all, e)
		}
		if line != "" {
			last = line
		}
	}
	if last != "data: [DONE]" {
		s.t.Errorf("the stream ends with %q", last)
	}
	return all
}

// names are the names of events, without repeated deltas.
func names(events []event) []string {
	var list []string
	for _, e := range events {
		list = append(list, strings.TrimPrefix(e.name, "response."))
	}
	return slices.Compact(list)
}

// checkResource checks the keys and types that the specification wants of a response.
func checkResource(t *testing.T, r map[string]any) {
	t.Helper()
	text := func(v any) bool { _, ok := v.(string); return ok }
	number := func(v any) bool { _, ok := v.(json.Number); return ok }
	flag := func(v any) bool { _, ok := v.(bool); return ok }
	list := func(v any) bool { _, ok := v.([]any); return ok }
	object := func(v any) bool { _, ok := v.(map[string]any); return ok }
	or := func(null bool, is func(any) bool) func(any) bool {
		return func(v any) bool { return null && v == nil || is(v) }
	}
	for key, is := range map[string]func(any) bool{
		"id": text, "object": func(v any) bool { return v == "response" }, "created_at": number, "completed_at": or(true, number), "status": text,
		"incomplete_details": or(true, object), "model": text, "previous_response_id": or(true, text), "instructions": or(true, text), "output": list,
		"error": or(true, object), "tools": list, "tool_choice": func(v any) bool { return text(v) || object(v) }, "truncation": text, "parallel_tool_calls": flag,
		"text": object, "top_p": number, "presence_penalty": number, "frequency_penalty": number, "top_logprobs": number, "temperature": number,
		"reasoning": or(true, object), "usage": or(true, object), "max_output_tokens": or(true, number), "max_tool_calls": or(true, number), "store": flag,
		"background": flag, "service_tier": text, "metadata": object, "safety_identifier": or(true, text), "prompt_cache_key": or(true, text),
	} {
		if v, there := r[key]; !there || !is(v) {
			t.Errorf("%s is %v", key, v)
		}
	}
	for _, key := range []string{"input_tokens", "output_tokens", "total_tokens"} {
		if r["usage"] != nil && !number(at(r, "usage", key)) {
			t.Errorf("usage %v", r["usage"])
		}
	}
	if r["usage"] != nil && (!number(at(r, "usage", "input_tokens_details", "cached_tokens")) || !number(at(r, "usage", "output_tokens_details", "reasoning_tokens"))) {
		t.Errorf("usage %v", r["usage"])
	}
	for i := range r["output"].([]any) {
		item := at(r, "output", i)
		if !text(at(item, "id")) || !text(at(item, "status")) {
			t.Errorf("item %v", item)
		}
	}
}

// respond asks for a response and checks that it has the form of one.
func (s *server) respond(body obj) map[string]any {
	s.t.Helper()
	status, r := s.object("POST", responsesPath, body)
	if status != 200 {
		s.t.Fatalf("status %d: %v", status, r)
	}
	checkResource(s.t.(*testing.T), r)
	return r
}

// says is the text of a response's messages.
func says(r map[string]any) string {
	var b strings.Builder
	output, _ := r["output"].([]any)
	for _, item := range output {
		if at(item, "type") == "message" {
			text, _ := at(item, "content", 0, "text").(string)
			b.WriteString(text)
		}
	}
	return b.String()
}

// hermes is a model that reasons, writes text and calls a tool.
func hermes(t *testing.T) *generate.Model {
	return generatetest.Speaking(t, speakers[0].speaker, engine.Options{})
}

// The acceptance cases of the Open Responses specification, rebuilt: a basic response, streaming, a system
// prompt, tool calling, several turns, and an image, which is a clear 400.

func TestResponsesAcceptanceBasic(t *testing.T) {
	s := serveDemo(t)
	r := s.respond(obj{"input": []obj{{"type": "message", "role": "user", "content": "Say hello in three words."}}})
	if r["status"] != "completed" || says(r) == "" || at(r, "output", 0, "role") != "assistant" || r["completed_at"] == nil {
		t.Errorf("response %v", r)
	}
	if same := s.respond(obj{"input": "Say hello in three words.", "temperature": 0}); says(same) == "" {
		t.Errorf("response %v", same)
	}
}

func TestResponsesAcceptanceStreaming(t *testing.T) {
	s := serveDemo(t)
	body := obj{"input": []obj{{"type": "message", "role": "user", "content": "Count from 1 to 5."}}, "temperature": 0}
	events := s.events(body)
	want := []string{"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed"}
	if got := names(events); !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	var text strings.Builder
	for _, e := range events {
		if r, ok := e.data["response"].(map[string]any); ok {
			checkResource(t, r)
		}
		if e.name == "response.output_text.delta" {
			text.WriteString(e.data["delta"].(string))
		}
	}
	last := at(events[len(events)-1].data, "response").(map[string]any)
	if text.String() != says(last) || last["status"] != "completed" || at(events[0].data, "response", "status") != "in_progress" {
		t.Errorf("deltas %q, the response %v", &text, last)
	}
	delete(body, "stream")
	if whole := s.respond(body); says(whole) != text.String() {
		t.Errorf("at once %q, streamed %q", says(whole), &text)
	}
}

func TestResponsesAcceptanceSystemPrompt(t *testing.T) {
	s := serveDemo(t)
	user := obj{"type": "message", "role": "user", "content": "Say hello."}
	for _, role := range []string{"system", "developer"} {
		r := s.respond(obj{"input": []obj{{"type": "message", "role": role, "content": "You are a pirate."}, user}, "temperature": 0})
		if r["status"] != "completed" || says(r) == "" {
			t.Errorf("%s: %v", role, r)
		}
		same := s.respond(obj{"instructions": "You are a pirate.", "input": []obj{user}, "temperature": 0})
		if says(same) != says(r) || mustJSON(t, at(same, "usage", "input_tokens")) != mustJSON(t, at(r, "usage", "input_tokens")) {
			t.Errorf("%s: instructions make another prompt than a message: %v and %v", role, same, r)
		}
		if same["instructions"] != "You are a pirate." {
			t.Errorf("instructions %v", same["instructions"])
		}
	}
}

func TestResponsesAcceptanceToolCalling(t *testing.T) {
	s := serve(t, hermes(t))
	r := s.respond(obj{"input": []obj{{"type": "message", "role": "user", "content": "What's the weather in Oslo?"}}, "tools": weatherTool, "temperature": 0})
	call := at(r, "output", 2)
	if at(call, "type") != "function_call" || at(call, "name") != "weather" || at(call, "arguments") != `{"city": "Oslo"}` || at(call, "status") != "completed" || at(call, "call_id") == "" {
		t.Errorf("output %v", r["output"])
	}
	if at(r, "tools", 0, "name") != "weather" || at(r, "tools", 0, "type") != "function" {
		t.Errorf("tools %v", r["tools"])
	}
}

func TestResponsesAcceptanceTurns(t *testing.T) {
	s := serveDemo(t)
	first := obj{"type": "message", "role": "user", "content": "My name is Alice."}
	r := s.respond(obj{"input": []obj{first, {"type": "message", "role": "assistant", "content": "Hello Alice!"},
		{"type": "message", "role": "user", "content": "What is my name?"}}, "temperature": 0})
	if r["status"] != "completed" || says(r) == "" {
		t.Errorf("response %v", r)
	}
	// The same conversation by previous_response_id has the same prompt.
	one := s.respond(obj{"input": []obj{first}, "temperature": 0})
	two := s.respond(obj{"input": "What is my name?", "previous_response_id": one["id"], "temperature": 0})
	same := s.respond(obj{"input": []any{first, at(one, "output", 0), obj{"role": "user", "content": "What is my name?"}}, "temperature": 0})
	if says(two) != says(same) || at(two, "usage", "input_tokens") != at(same, "usage", "input_tokens") || two["previous_response_id"] != one["id"] {
		t.Errorf("by id %v, by items %v", two, same)
	}
}

func TestResponsesAcceptanceImageIsA400(t *testing.T) {
	s := serveDemo(t)
	for _, part := range []obj{{"type": "input_image", "image_url": "data:image/png;base64,AA=="}, {"type": "input_file", "file_id": "f"}, {"type": "input_audio"}} {
		status, r := s.object("POST", responsesPath, obj{"input": []obj{{"type": "message", "role": "user", "content": []obj{{"type": "input_text", "text": "What is it?"}, part}}}})
		if status != 400 || at(r, "error", "param") != "input[0].content[1].type" || !strings.Contains(at(r, "error", "message").(string), part["type"].(string)) {
			t.Errorf("%v: %d %v", part, status, r)
		}
	}
}
