package api_test

import (
	"encoding/json"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
)

// openTool is weather as Ollama's clients have tools.
var openTool = []obj{{"type": "function", "function": obj{"name": "weather", "description": "tells it",
	"parameters": obj{"type": "object", "properties": obj{"city": obj{"type": "string"}}}}}}

// lines posts a body to a path of Ollama's and returns the objects of its stream.
func (s *server) lines(path string, body obj) (all []map[string]any) {
	s.t.Helper()
	r := s.do("POST", path, body)
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/x-ndjson" {
		s.t.Fatalf("status %d, %v, %s: %.300s", r.StatusCode, err, r.Header.Get("Content-Type"), b)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n") {
		all = append(all, parse(s.t, line))
	}
	return all
}

// TestOllamaChat: thinking, text and calls, streamed by default and the same at once, with counts and durations.
func TestOllamaChat(t *testing.T) {
	s := serve(t, hermes(t))
	body := obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "tools": openTool, "think": true, "options": obj{"temperature": 0}, "keep_alive": "5m"}
	var text, thinking string
	var calls []any
	stream := s.lines("/api/chat", body)
	for i, line := range stream {
		last := i == len(stream)-1
		if line["done"] != last || line["model"] == "" || line["created_at"] == "" || at(line, "message", "role") != "assistant" {
			t.Errorf("line %d: %v", i, line)
		}
		text += at(line, "message", "content").(string)
		if words, ok := at(line, "message", "thinking").(string); ok {
			thinking += words
		}
		if list, ok := at(line, "message", "tool_calls").([]any); ok {
			calls = append(calls, list...)
		}
	}
	if thinking != "Where? There." || text != "I look." || len(calls) != 2 || at(calls, 0, "function", "name") != "weather" ||
		at(calls, 0, "function", "arguments", "city") != "Oslo" || at(calls, 1, "function", "arguments", "city") != "世\n" ||
		at(calls, 0, "id") == at(calls, 1, "id") {
		t.Errorf("%q, %q, %v", thinking, text, calls)
	}
	end := stream[len(stream)-1]
	if end["done_reason"] != "stop" {
		t.Errorf("the stream ends with %v", end)
	}
	for _, name := range []string{"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"} {
		if n, err := end[name].(json.Number).Int64(); err != nil || n < 1 {
			t.Errorf("%s is %v", name, end[name])
		}
	}
	body["stream"] = false
	_, whole := s.object("POST", "/api/chat", body)
	if at(whole, "message", "content") != text || at(whole, "message", "thinking") != thinking || whole["eval_count"] != end["eval_count"] || whole["done"] != true {
		t.Errorf("at once: %v", whole)
	}
	if got := at(whole, "message", "tool_calls"); !reflect.DeepEqual(withoutIDs(got), withoutIDs(calls)) {
		t.Errorf("calls at once %v, streamed %v", got, calls)
	}
	body["think"] = false
	if _, whole := s.object("POST", "/api/chat", body); at(whole, "message", "thinking") != nil {
		t.Errorf("thinking is shown: %v", whole)
	}
}

// withoutIDs are calls by their functions.
func withoutIDs(calls any) (list []any) {
	all, _ := calls.([]any)
	for _, c := range all {
		list = append(list, at(c, "function"))
	}
	return list
}

// TestOllamaToolLoop: the calls go back with their results, as Ollama's clients send them.
func TestOllamaToolLoop(t *testing.T) {
	s := serve(t, hermes(t))
	_, first := s.object("POST", "/api/chat", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "tools": openTool, "stream": false})
	status, r := s.object("POST", "/api/chat", obj{"tools": openTool, "stream": false, "messages": []any{obj{"role": "user", "content": "Hi"}, first["message"],
		obj{"role": "tool", "tool_name": "weather", "content": "rain"}, obj{"role": "tool", "tool_name": "weather", "content": "sun"}}})
	if status != 200 || r["done"] != true {
		t.Errorf("status %d: %v", status, r)
	}
}

// TestOllamaGenerate: a prompt by the template or raw, the ids as context of the next request, and the bounds.
func TestOllamaGenerate(t *testing.T) {
	s := serveDemo(t)
	cold := obj{"temperature": 0, "num_predict": 4, "seed": 1}
	_, r := s.object("POST", "/api/generate", obj{"prompt": "The boat", "raw": true, "options": cold, "stream": false})
	_, same := s.object("POST", "/v1/completions", obj{"prompt": "The boat", "temperature": 0, "max_tokens": 4})
	if r["response"] == "" || r["response"] != at(same, "choices", 0, "text") || r["done_reason"] != "length" || r["eval_count"].(json.Number) != "4" || r["context"] != nil {
		t.Errorf("raw %v, completions %v", r, same)
	}
	_, chat := s.object("POST", "/api/generate", obj{"prompt": "Hi", "system": "Be brief.", "options": cold, "stream": false})
	_, want := s.object("POST", "/v1/chat/completions", obj{"messages": []obj{{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}}, "temperature": 0, "max_tokens": 4})
	if chat["response"] != at(want, "choices", 0, "message", "content") {
		t.Errorf("generate %v, chat completions %v", chat, want)
	}
	ids, _ := chat["context"].([]any)
	if n, _ := chat["prompt_eval_count"].(json.Number).Int64(); len(ids) != int(n)+4 {
		t.Fatalf("context of %d ids: %v", len(ids), chat)
	}
	status, next := s.object("POST", "/api/generate", obj{"prompt": "Go on", "context": ids, "options": cold, "stream": false})
	if n, _ := next["prompt_eval_count"].(json.Number).Int64(); status != 200 || int(n) <= len(ids) {
		t.Errorf("status %d: %v", status, next)
	}
	n, _ := r["prompt_eval_count"].(json.Number).Int64()
	_, bound := s.object("POST", "/api/generate", obj{"prompt": "The boat", "raw": true, "options": obj{"temperature": 0, "num_ctx": n + 2}, "stream": false})
	if bound["eval_count"].(json.Number) != "2" || bound["done_reason"] != "length" {
		t.Errorf("num_ctx: %v", bound)
	}
	_, empty := s.object("POST", "/api/generate", obj{"model": s.model()})
	if empty["done_reason"] != "load" || empty["done"] != true {
		t.Errorf("an empty request: %v", empty)
	}
	_, scored := s.object("POST", "/api/generate", obj{"prompt": "The boat", "raw": true, "options": cold, "stream": false, "logprobs": true, "top_logprobs": 2})
	if list, _ := scored["logprobs"].([]any); len(list) != 4 || at(list, 0, "top_logprobs", 0, "token") != at(list, 0, "token") {
		t.Errorf("logprobs: %v", scored["logprobs"])
	}
}

// model is the name of the first model.
func (s *server) model() string {
	_, list := s.object("GET", "/v1/models", nil)
	return at(list, "data", 0, "id").(string)
}

// TestOllamaFormat: "json" and a schema hold.
func TestOllamaFormat(t *testing.T) {
	s := serveDemo(t)
	schema := obj{"type": "object", "properties": obj{"a": obj{"enum": []int{1, 2}}}, "required": []string{"a"}, "additionalProperties": false}
	_, r := s.object("POST", "/api/chat", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "format": schema, "stream": false, "options": obj{"num_predict": 60, "temperature": 0}})
	if got := parse(t, at(r, "message", "content").(string)); got["a"] == nil || len(got) != 1 {
		t.Errorf("%v", r)
	}
	_, r = s.object("POST", "/api/generate", obj{"prompt": "Hi", "format": "json", "stream": false, "options": obj{"num_predict": 20, "temperature": 0}})
	if words := r["response"].(string); !strings.HasPrefix(strings.TrimSpace(words), "{") {
		t.Errorf("%v", r)
	}
}

// TestOllamaLists: tags, ps, show and version have what clients read, and names may end in :latest.
func TestOllamaLists(t *testing.T) {
	s := serveDemo(t)
	_, tags := s.object("GET", "/api/tags", nil)
	_, ps := s.object("GET", "/api/ps", nil)
	name := s.model()
	for _, list := range []map[string]any{tags, ps} {
		m := at(list, "models", 0)
		if at(m, "name") != name || at(m, "model") != name || at(m, "details", "format") != "safetensors" || at(m, "details", "family") == "" || len(at(m, "digest").(string)) != 64 {
			t.Errorf("%v", list)
		}
	}
	for _, field := range []string{"model", "name"} {
		status, show := s.object("POST", "/api/show", obj{field: name + ":latest"})
		family, _ := at(show, "details", "family").(string)
		if status != 200 || at(show, "model_info", "general.architecture") != family || at(show, "model_info", family+".context_length") == nil ||
			at(show, "capabilities", 0) != "completion" || !strings.Contains(show["parameters"].(string), "top_p") {
			t.Errorf("status %d: %v", status, show)
		}
	}
	if _, v := s.object("GET", "/api/version", nil); v["version"] == "" || v["heft"] != "test" {
		t.Errorf("%v", v)
	}
}

// TestPullingAServedModel: Ollama's clients pull a model before they use it, and a served one was a 501.
func TestPullingAServedModel(t *testing.T) {
	s := serveDemo(t)
	for _, body := range []obj{{"model": s.model(), "stream": false}, {"name": s.model() + ":latest", "stream": false}} {
		if status, r := s.object("POST", "/api/pull", body); status != 200 || r["status"] != "success" {
			t.Errorf("%v: %d %v", body, status, r)
		}
	}
	if lines := s.lines("/api/pull", obj{"model": s.model()}); len(lines) != 1 || lines[0]["status"] != "success" {
		t.Errorf("a stream: %v", lines)
	}
	if status, r := s.object("POST", "/api/pull", obj{"model": 3}); status != 400 {
		t.Errorf("a model that is no name: %d %v", status, r)
	}
}

// TestOllamaErrors: an unsupported request is an error in Ollama's shape that says what to do.
func TestOllamaErrors(t *testing.T) {
	s := serveDemo(t)
	hi := []obj{{"role": "user", "content": "Hi"}}
	for _, c := range []struct {
		method, path string
		body         obj
		status       int
		says         string
	}{
		{"POST", "/api/pull", obj{"model": "x"}, 501, "serve pull"},
		{"POST", "/api/create", obj{"model": "x"}, 501, "--model"},
		{"DELETE", "/api/delete", obj{"model": "x"}, 501, "serve rm"},
		{"POST", "/api/none", obj{}, 404, "/api/none"},
		{"GET", "/api/chat", nil, 405, "GET"},
		{"POST", "/api/chat", obj{"model": "none", "messages": hi}, 404, "none"},
		{"POST", "/api/show", obj{"model": "none"}, 404, "none"},
		{"POST", "/api/chat", obj{"messages": []obj{{"role": "user", "content": "x", "images": []string{"AAAA"}}}}, 400, "messages[0].images"},
		{"POST", "/api/generate", obj{"prompt": "x", "images": []string{"AAAA"}}, 400, "images"},
		{"POST", "/api/generate", obj{"prompt": "x", "suffix": "y"}, 400, "suffix"},
		{"POST", "/api/generate", obj{"prompt": "x", "template": "y"}, 400, "raw"},
		{"POST", "/api/generate", obj{"prompt": "x", "raw": true, "system": "y"}, 400, "system"},
		{"POST", "/api/chat", obj{"messages": hi, "options": obj{"mirostat": 1}}, 400, "options.mirostat"},
		{"POST", "/api/chat", obj{"messages": hi, "options": obj{"repeat_last_n": 64, "repeat_penalty": 1.1}}, 400, "options.repeat_last_n"},
		{"POST", "/api/chat", obj{"messages": hi, "options": obj{"top_p": 2}}, 400, "options.top_p"},
		{"POST", "/api/chat", obj{"messages": hi, "options": obj{"num_ctx": 1}}, 400, "num_ctx"},
		{"POST", "/api/chat", obj{"messages": hi, "format": "xml"}, 400, "format"},
		{"POST", "/api/chat", obj{"messages": hi, "format": obj{"type": "object", "minPropertys": 1}}, 400, "minPropertys"},
		{"POST", "/api/chat", obj{"messages": hi, "think": "much"}, 400, "think"},
		{"POST", "/api/chat", obj{"messages": "Hi"}, 400, "messages"},
		{"POST", "/api/chat", obj{"messages": []obj{{"content": "x"}}}, 400, "messages[0].role"},
		{"POST", "/api/embed", obj{"input": 3}, 400, "input"},
		{"POST", "/api/embed", obj{"input": []any{"a", nil}}, 400, "input"},
	} {
		status, r := s.object(c.method, c.path, c.body)
		if why, _ := r["error"].(string); status != c.status || !strings.Contains(why, c.says) || len(r) != 1 {
			t.Errorf("%s %s %v: status %d, %v; want %d with %q", c.method, c.path, c.body, status, r, c.status, c.says)
		}
	}
	for _, fine := range []obj{{"mirostat": 0, "mirostat_tau": 5.0, "tfs_z": 1, "num_gpu": 1, "num_keep": 4, "penalize_newline": true, "top_p": 0, "num_predict": 1},
		{"repeat_last_n": 64, "num_predict": -2, "stop": "e"}, {"repeat_last_n": 0, "repeat_penalty": 1.3, "num_predict": 1, "seed": -1}} {
		if status, r := s.text("POST", "/api/chat", obj{"messages": hi, "stream": false, "options": fine}); status != 200 {
			t.Errorf("%v: status %d, %s", fine, status, r)
		}
	}
	locked := serveDemo(t, "key")
	if status, r := locked.object("GET", "/api/tags", nil); status != 401 || r["error"] == "" {
		t.Errorf("without a key: status %d, %v", status, r)
	}
}

// TestOllamaEmbeds: embeddings have length 1, one per text, and the direction of those of /v1/embeddings.
func TestOllamaEmbeds(t *testing.T) {
	s := serveDemo(t)
	_, r := s.object("POST", "/api/embed", obj{"input": []string{"The boat", "A river"}, "truncate": true})
	_, same := s.object("POST", "/v1/embeddings", obj{"input": []string{"The boat", "A river"}})
	_, old := s.object("POST", "/api/embeddings", obj{"prompt": "The boat"})
	if len(r["embeddings"].([]any)) != 2 || r["prompt_eval_count"] != at(same, "usage", "prompt_tokens") {
		t.Fatalf("%.300v", r)
	}
	want, length, sum := vector(t, same, 0), 0.0, 0.0
	for _, x := range want {
		length += x * x
	}
	for i, x := range want {
		got, _ := at(r, "embeddings", 0, i).(json.Number).Float64()
		if sum += got * got; !(math.Abs(got-x/math.Sqrt(length)) <= 1e-6) {
			t.Fatalf("value %d is %v, want %v", i, got, x/math.Sqrt(length))
		}
		if raw, _ := at(old, "embedding", i).(json.Number).Float64(); raw != x {
			t.Fatalf("the older endpoint's value %d is %v, want %v", i, raw, x)
		}
	}
	if !(math.Abs(sum-1) <= 1e-5) {
		t.Errorf("the length is %v", math.Sqrt(sum))
	}
	if status, none := s.text("POST", "/api/embed", obj{"input": []string{}}); status != 200 || !strings.Contains(none, `"embeddings":[]`) {
		t.Errorf("status %d: %s", status, none)
	}
}

// TestKeepAlive0Unloads: it was ignored. Without a prompt, as ollama stop sends it, the answer was "load".
func TestKeepAlive0Unloads(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{}, nil, nil, "a")
	for _, c := range []struct {
		path string
		body obj
	}{
		{"/api/generate", obj{"model": "a", "keep_alive": 0}},
		{"/api/generate", obj{"model": "a", "prompt": "", "keep_alive": "0s"}},
		{"/api/chat", obj{"model": "a", "messages": []obj{}, "keep_alive": "0"}},
	} {
		if status, r := s.object("POST", "/api/generate", obj{"model": "a", "keep_alive": -1}); status != 200 || r["done_reason"] != "load" {
			t.Errorf("a request that loads: %d %v", status, r)
		}
		if status, r := s.object("POST", c.path, c.body); status != 200 || r["done_reason"] != "unload" || r["done"] != true {
			t.Errorf("%s %v: %d %v", c.path, c.body, status, r)
		}
		within(t, "unloaded", func() bool { return s.states()["a"] == "known" && strings.HasSuffix(s.happened(), "-a") })
	}
	for _, stream := range []bool{true, false} {
		s.text("POST", "/api/generate", obj{"model": "a", "prompt": "x", "raw": true, "stream": stream, "keep_alive": 0, "options": obj{"num_predict": 1}})
		within(t, "unloaded after an answer", func() bool { return s.states()["a"] == "known" && strings.HasSuffix(s.happened(), "-a") })
	}
}

// TestKeepAlive0LoadedAModelToUnloadIt: a model that was not loaded was loaded in order to be unloaded.
func TestKeepAlive0LoadedAModelToUnloadIt(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{}, nil, nil, "a")
	for path, body := range map[string]obj{"/api/generate": {"model": "a:latest"}, "/api/chat": {"messages": []obj{}}} {
		body["keep_alive"] = 0
		if status, r := s.object("POST", path, body); status != 200 || r["done_reason"] != "unload" || r["done"] != true || r["model"] != "a" {
			t.Errorf("%s: %d %v", path, status, r)
		}
		body["model"] = "none"
		if status, r := s.object("POST", path, body); status != 404 {
			t.Errorf("%s of an unknown model: %d %v", path, status, r)
		}
	}
	if status, r := s.object("POST", "/api/chat", obj{"messages": 3, "keep_alive": 0}); status != 400 {
		t.Errorf("messages of a wrong type: %d %v", status, r)
	}
	if got := s.happened(); got != "" {
		t.Errorf("got %s, want no model loaded", got)
	}
	s.text("POST", "/api/chat", obj{"model": "a", "messages": []obj{{"role": "user", "content": "x"}}, "keep_alive": 0})
	if got := s.happened(); !strings.HasPrefix(got, "+a") {
		t.Errorf("a conversation with keep_alive 0: got %q, want the model loaded", got)
	}
}

// TestAnyKeyUnloadedModels: keep_alive 0 of a client without an admin key unloaded the model for all.
func TestAnyKeyUnloadedModels(t *testing.T) {
	shelf := newShelf(t, generate.ModelsOptions{}, nil, nil, "a")
	s := shelf.with(api.Options{APIKeys: []string{"plain"}, AdminKeys: []string{"admin"}})
	stop := obj{"model": "a", "keep_alive": 0}
	answer := obj{"model": "a", "prompt": "x", "raw": true, "stream": false, "keep_alive": 0, "options": obj{"num_predict": 1}}
	s.key = "plain"
	if status, r := s.object("POST", "/api/generate", answer); status != 200 || r["done_reason"] != "length" {
		t.Errorf("an answer: %d %v", status, r)
	}
	if status, r := s.object("POST", "/api/generate", stop); status != 403 || r["error"] != "This request needs an admin key." {
		t.Errorf("to unload without an admin's key: %d %v", status, r)
	}
	if got := shelf.happened(); got != "+a" {
		t.Errorf("got %s, want the model loaded and not unloaded", got)
	}
	s.key = "admin"
	if status, r := s.object("POST", "/api/generate", stop); status != 200 || r["done_reason"] != "unload" {
		t.Errorf("to unload with an admin's key: %d %v", status, r)
	}
	within(t, "unloaded", func() bool { return shelf.happened() == "+a, -a" })
}

// TestThinkingOfAModelThatCannotThink: "think": true was ignored; Ollama answers 400.
func TestThinkingOfAModelThatCannotThink(t *testing.T) {
	s := serveDemo(t)
	hi := []obj{{"role": "user", "content": "Hi"}}
	for path, body := range map[string]obj{"/api/chat": {"messages": hi, "stream": false}, "/api/generate": {"prompt": "Hi", "stream": false}} {
		body["options"] = obj{"num_predict": 1}
		want := `"` + s.model() + `" does not support thinking`
		for _, think := range []any{true, "low"} {
			body["think"] = think
			if status, r := s.object("POST", path, body); status != 400 || r["error"] != want {
				t.Errorf("%s, think %v: %d %v, want 400 %s", path, think, status, r, want)
			}
		}
		body["think"] = false
		if status, r := s.object("POST", path, body); status != 200 {
			t.Errorf("%s, think false: %d %v", path, status, r)
		}
	}
}
