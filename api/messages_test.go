package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

const messagesPath = "/v1/messages"

// schemaTool is weather as messages have tools.
var schemaTool = []obj{{"name": "weather", "description": "tells it", "input_schema": obj{"type": "object", "properties": obj{"city": obj{"type": "string"}}}}}

// hi is a request for a message, with more fields.
func hi(more obj) obj {
	body := obj{"max_tokens": 500, "messages": []obj{{"role": "user", "content": "Hi"}}, "temperature": 0}
	for name, v := range more {
		body[name] = v
	}
	return body
}

// message asks for a message.
func (s *server) message(body obj) map[string]any {
	s.t.Helper()
	status, r := s.object("POST", messagesPath, body)
	if status != 200 || r["type"] != "message" || r["role"] != "assistant" || !strings.HasPrefix(r["id"].(string), "msg_") || r["model"] == "" {
		s.t.Fatalf("status %d: %v", status, r)
	}
	return r
}

// messageEvents asks for a message as a stream and checks the form of its events.
func (s *server) messageEvents(body obj) (all []event) {
	s.t.Helper()
	body["stream"] = true
	r := s.do("POST", messagesPath, body)
	b, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		s.t.Fatalf("status %d, %v: %.300s", r.StatusCode, err, b)
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		head, data, ok := strings.Cut(part, "\ndata: ")
		e := event{strings.TrimPrefix(head, "event: "), nil}
		if !ok {
			s.t.Fatalf("event %q", part)
		}
		if e.data = parse(s.t, data); e.data["type"] != e.name {
			s.t.Errorf("event %s has %s", e.name, data)
		}
		all = append(all, e)
	}
	return all
}

// assembled puts a stream's message together as clients do.
func assembled(t *testing.T, events []event) map[string]any {
	t.Helper()
	r := events[0].data["message"].(map[string]any)
	content := []any{}
	partial := ""
	for _, e := range events[1:] {
		switch e.name {
		case "content_block_start":
			content = append(content, e.data["content_block"])
			partial = ""
		case "content_block_delta":
			b, d := content[len(content)-1].(map[string]any), e.data["delta"].(map[string]any)
			for name, v := range d {
				switch name {
				case "type":
				case "partial_json":
					partial += v.(string)
					continue
				default:
					b[name] = b[name].(string) + v.(string)
				}
			}
		case "content_block_stop":
			if b := content[len(content)-1].(map[string]any); b["type"] == "tool_use" && json.Valid([]byte(partial)) { // else the call was cut
				b["input"] = map[string]any(parse(t, partial))
			}
		case "message_delta":
			for name, v := range e.data["delta"].(map[string]any) {
				r[name] = v
			}
			r["usage"] = e.data["usage"]
		}
	}
	r["content"] = content
	return r
}

// TestMessagesEventsOfThinkingTextAndCalls: every event, in order, of a message with all kinds of blocks, which is
// the message that is sent at once.
func TestMessagesEventsOfThinkingTextAndCalls(t *testing.T) {
	s := serve(t, hermes(t))
	body := hi(obj{"tools": schemaTool, "thinking": obj{"type": "enabled", "budget_tokens": 100}})
	events := s.messageEvents(body)
	var got []string
	for _, e := range events {
		name := e.name
		if kind, ok := at(e.data, "delta", "type").(string); ok {
			name = kind
		}
		if kind, ok := at(e.data, "content_block", "type").(string); ok {
			name += " " + kind
		}
		got = append(got, name)
	}
	got = slices.Compact(got)
	want := []string{"message_start", "ping", "content_block_start thinking", "thinking_delta", "signature_delta", "content_block_stop",
		"content_block_start text", "text_delta", "content_block_stop", "content_block_start tool_use", "input_json_delta", "content_block_stop",
		"content_block_start tool_use", "input_json_delta", "content_block_stop", "message_delta", "message_stop"}
	if !slices.Equal(got, want) {
		t.Fatalf("events\n%q, want\n%q", got, want)
	}
	for _, c := range []struct {
		path []any
		want any
	}{{[]any{"message", "stop_reason"}, nil}, {[]any{"message", "content"}, []any{}}, {[]any{"message", "role"}, "assistant"}} {
		if v := at(events[0].data, c.path...); !reflect.DeepEqual(v, c.want) {
			t.Errorf("the first event has %v %v, want %v", c.path, v, c.want)
		}
	}
	streamed := assembled(t, events)
	if at(streamed, "content", 0, "thinking") != "Where? There." || at(streamed, "content", 0, "signature") == "" || at(streamed, "content", 1, "text") != "I look." ||
		at(streamed, "content", 2, "input", "city") != "Oslo" || at(streamed, "content", 3, "input", "city") != "世\n" || at(streamed, "content", 2, "id") == at(streamed, "content", 3, "id") ||
		streamed["stop_reason"] != "tool_use" || streamed["stop_sequence"] != nil {
		t.Errorf("message %v", streamed)
	}
	delete(body, "stream")
	whole := s.message(body)
	for _, r := range []map[string]any{streamed, whole} { // ids differ
		delete(r, "id")
		delete(at(r, "content", 2).(map[string]any), "id")
		delete(at(r, "content", 3).(map[string]any), "id")
	}
	if !reflect.DeepEqual(whole, streamed) {
		t.Errorf("at once   %v\nas events %v", whole, streamed)
	}
}

// TestMessagesToolLoop: the answer with its thinking and the results of its calls are the next request, whose
// prompt is that of the same chat.
func TestMessagesToolLoop(t *testing.T) {
	s := serve(t, hermes(t))
	first := s.message(hi(obj{"tools": schemaTool}))
	result := func(i int, content any) obj {
		return obj{"type": "tool_result", "tool_use_id": at(first, "content", i, "id"), "content": content}
	}
	messages := []any{obj{"role": "user", "content": "Hi"}, obj{"role": "assistant", "content": first["content"]},
		obj{"role": "user", "content": []any{result(2, "rain"), result(3, []obj{{"type": "text", "text": "sun"}}), obj{"type": "text", "text": "So?"}}}}
	next := s.message(hi(obj{"tools": schemaTool, "messages": messages}))
	var calls []obj
	for _, i := range []int{2, 3} {
		calls = append(calls, obj{"id": at(first, "content", i, "id"), "type": "function", "function": obj{"name": "weather", "arguments": mustJSON(t, at(first, "content", i, "input"))}})
	}
	chat := []obj{{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "Where? There.", "content": "I look.", "tool_calls": calls},
		{"role": "tool", "tool_call_id": calls[0]["id"], "name": "weather", "content": "rain"}, {"role": "tool", "tool_call_id": calls[1]["id"], "name": "weather", "content": "sun"},
		{"role": "user", "content": "So?"}}
	function := obj{"name": "weather", "description": "tells it", "parameters": schemaTool[0]["input_schema"]}
	status, same := s.object("POST", "/v1/chat/completions", obj{"messages": chat, "tools": []obj{{"type": "function", "function": function}}, "max_tokens": 1})
	if status != 200 || at(next, "usage", "input_tokens") != at(same, "usage", "prompt_tokens") {
		t.Errorf("the prompt has %v tokens, that of the chat %d %v", at(next, "usage"), status, same)
	}
}

// TestCountTokensIsTheUsageOfTheRequest for requests of all kinds, with and without a length.
func TestCountTokensIsTheUsageOfTheRequest(t *testing.T) {
	s := serve(t, hermes(t))
	for name, body := range map[string]obj{
		"plain": hi(nil), "system": hi(obj{"system": "Be brief."}), "blocks": hi(obj{"system": []obj{{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}}}),
		"tools": hi(obj{"tools": schemaTool}), "hidden tools": hi(obj{"tools": schemaTool, "tool_choice": obj{"type": "none"}}),
		"no thinking": hi(obj{"thinking": obj{"type": "disabled"}}), "prefill": hi(obj{"messages": []obj{{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "We"}}}),
	} {
		r := s.message(body)
		delete(body, "max_tokens")
		if status, n := s.object("POST", messagesPath+"/count_tokens", body); status != 200 || n["input_tokens"] != at(r, "usage", "input_tokens") || len(n) != 1 {
			t.Errorf("%s: %d %v, usage %v", name, status, n, r["usage"])
		}
	}
}

// TestMessagesShowTheCacheWhereItIsAskedFor: input_tokens counts the whole prompt, unless a cache_control asks
// for tokens of the cache apart.
func TestMessagesShowTheCacheWhereItIsAskedFor(t *testing.T) {
	s := serveDemo(t)
	long := strings.Repeat("All animals. ", 40)
	plain := s.message(hi(obj{"system": long, "max_tokens": 1}))
	marked := s.message(hi(obj{"system": []obj{{"type": "text", "text": long, "cache_control": obj{"type": "ephemeral"}}}, "max_tokens": 1}))
	number := func(r map[string]any, name string) int { return int(toFloat(t, at(r, "usage", name))) }
	if number(plain, "cache_read_input_tokens") != 0 || number(marked, "cache_read_input_tokens") == 0 ||
		number(marked, "cache_read_input_tokens")+number(marked, "input_tokens") != number(plain, "input_tokens") {
		t.Errorf("plain %v, marked %v", plain["usage"], marked["usage"])
	}
}

func toFloat(t *testing.T, v any) float64 {
	t.Helper()
	n, ok := v.(interface{ Float64() (float64, error) })
	if !ok {
		t.Fatalf("no number: %v", v)
	}
	f, err := n.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMessagesEndForAReason: each stop_reason, at once and as a stream.
func TestMessagesEndForAReason(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "One two three."}, engine.Options{}))
	for _, c := range []struct {
		more           obj
		reason         string
		sequence, text any
	}{
		{nil, "end_turn", nil, "One two three."}, {obj{"max_tokens": 3}, "max_tokens", nil, "One two"},
		{obj{"stop_sequences": []string{"four", " thr"}}, "stop_sequence", " thr", "One two"},
	} {
		whole, streamed := s.message(hi(c.more)), assembled(t, s.messageEvents(hi(c.more)))
		for _, r := range []map[string]any{whole, streamed} {
			if r["stop_reason"] != c.reason || r["stop_sequence"] != c.sequence || at(r, "content", 0, "text") != c.text || at(r, "content", 0, "type") != "text" {
				t.Errorf("%v: %v", c.more, r)
			}
		}
	}
	// Thinking that is not to be shown has a signature alone.
	s = serve(t, hermes(t))
	hidden := obj{"thinking": obj{"type": "adaptive", "display": "omitted"}, "tools": schemaTool}
	for _, r := range []map[string]any{s.message(hi(hidden)), assembled(t, s.messageEvents(hi(hidden)))} {
		if at(r, "content", 0, "thinking") != "" || at(r, "content", 0, "signature") == "" || at(r, "content", 1, "text") != "I look." {
			t.Errorf("message %v", r)
		}
	}
	// A call that is cut has no input and is not to be made.
	cut := hi(obj{"tools": schemaTool, "max_tokens": 60})
	if r := s.message(cut); at(r, "content", 2, "type") != "tool_use" || mustJSON(t, at(r, "content", 2, "input")) != "{}" || r["stop_reason"] != "max_tokens" {
		t.Errorf("message %v", r)
	}
}

// TestMessagesThatFail: before the stream begins with a status, then with an error event.
func TestMessagesThatFail(t *testing.T) {
	body := hi(obj{"max_tokens": 50, "ignore_eos": true})
	s := serve(t, generatetest.Spoken(t, failing(3), engine.Options{}))
	if status, e := s.object("POST", messagesPath, body); status != 500 || e["type"] != "error" || at(e, "error", "type") != "api_error" {
		t.Errorf("at once: %d %v", status, e)
	}
	s = serve(t, generatetest.Spoken(t, failing(3), engine.Options{}))
	events := s.messageEvents(body)
	last := events[len(events)-1]
	if last.name != "error" || at(last.data, "error", "type") != "api_error" || !strings.Contains(at(last.data, "error", "message").(string), "ends early") || last.data["request_id"] == nil {
		t.Errorf("the last event is %v", last)
	}
}

// TestErrorsHaveAnthropicsShape: those of the middleware, too.
func TestErrorsHaveAnthropicsShape(t *testing.T) {
	s := serve(t, hermes(t), "secret")
	ask := func(method, path, key, body string, header ...string) (int, map[string]any, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", key)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, parse(t, readAll(t, resp)), resp.Header
	}
	good := mustJSON(t, hi(obj{"max_tokens": 2}))
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		kind                    string
	}{
		{"POST", messagesPath, "wrong", good, 401, "authentication_error"}, {"POST", messagesPath, "secret", `{"model": "none"}`, 404, "not_found_error"},
		{"POST", messagesPath + "/none", "secret", good, 404, "not_found_error"}, {"GET", messagesPath, "secret", "", 405, "invalid_request_error"},
		{"POST", messagesPath, "secret", `{`, 400, "invalid_request_error"}, {"POST", messagesPath + "/count_tokens", "secret", `[]`, 400, "invalid_request_error"},
		{"POST", messagesPath, "secret", strings.Repeat(" ", 33<<20), 413, "request_too_large"},
	} {
		status, e, h := ask(c.method, c.path, c.key, c.body, "X-Request-Id", "req_7")
		if status != c.status || e["type"] != "error" || at(e, "error", "type") != c.kind || at(e, "error", "message") == "" || e["request_id"] != "req_7" || len(e) != 3 {
			t.Errorf("%s %s: %d %v %v, want %d %s", c.method, c.path, status, e, h, c.status, c.kind)
		}
	}
	if status, e, _ := ask("GET", "/v1/none", "secret", "", "Anthropic-Version", "2023-06-01"); status != 404 || at(e, "error", "type") != "not_found_error" {
		t.Errorf("a path of no dialect: %d %v", status, e)
	}
	if status, e, _ := ask("GET", "/v1/none", "secret", ""); at(e, "error", "param") != nil || status != 404 || e["type"] != nil {
		t.Errorf("another client's: %d %v", status, e)
	}
	status, r, h := ask("POST", messagesPath, "secret", good, "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "none-2099-01-01,other", "X-Request-Id", "req_8")
	if status != 200 || r["type"] != "message" || h.Get("Request-Id") != "req_8" {
		t.Errorf("with unknown betas: %d %v %v", status, r, h)
	}
}
