package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/internal/golden"
)

// shapes are the objects of one file: the fields that the official client's types have.
type shapes struct {
	Objects map[string]map[string]shape `json:"objects"`
}

type shape struct {
	Type     any  `json:"type"` // a name, or {"ref" | "array" | "map" | "enum" | "anyOf": …}
	Required bool `json:"required"`
	Nullable bool `json:"nullable"`
}

// check returns the faults of v as an object called name.
func (s *shapes) check(name, path string, v any) []string {
	fields, ok := s.Objects[name]
	if !ok {
		return []string{path + ": no shape " + name}
	}
	o, ok := v.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s is %T, want the object %s", path, v, name)}
	}
	var wrong []string
	for field, f := range fields {
		at := path + "." + field
		value, there := o[field]
		switch {
		case !there && f.Required:
			wrong = append(wrong, at+" is missing")
		case there && value == nil && !f.Nullable && f.Required:
			wrong = append(wrong, at+" is null")
		case there && value != nil:
			wrong = append(wrong, s.checkType(f.Type, at, value)...)
		}
	}
	return wrong
}

func (s *shapes) checkType(want any, path string, v any) []string {
	bad := []string{fmt.Sprintf("%s is %v (%T), want %v", path, v, v, want)}
	switch want := want.(type) {
	case string:
		if !isA(want, v) {
			return bad
		}
	case map[string]any:
		if ref, ok := want["ref"].(string); ok {
			return s.check(ref, path, v)
		}
		if enum, ok := want["enum"].([]any); ok && !slices.Contains(enum, v) {
			return bad
		}
		if types, ok := want["anyOf"].([]any); ok && !slices.ContainsFunc(types, func(w any) bool { return len(s.checkType(w, path, v)) == 0 }) {
			return bad
		}
		return s.checkItems(want, path, v)
	}
	return nil
}

// checkItems looks into lists and maps. Null may stand for an item: the first token of a
// prompt has no log-probability.
func (s *shapes) checkItems(want map[string]any, path string, v any) []string {
	var wrong []string
	if item, ok := want["array"]; ok {
		list, ok := v.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %T, want a list", path, v)}
		}
		for i, x := range list {
			if x != nil {
				wrong = append(wrong, s.checkType(item, fmt.Sprintf("%s[%d]", path, i), x)...)
			}
		}
	}
	if item, ok := want["map"]; ok {
		m, ok := v.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %T, want a map", path, v)}
		}
		for k, x := range m {
			wrong = append(wrong, s.checkType(item, path+"["+k+"]", x)...)
		}
	}
	return wrong
}

func isA(name string, v any) bool {
	switch name {
	case "string":
		_, ok := v.(string)
		return ok
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "number", "integer":
		n, ok := v.(json.Number)
		return ok && (name == "number" || !strings.ContainsAny(n.String(), ".eE"))
	}
	return true // "object", "any"
}

var (
	hello     = []obj{{"role": "user", "content": "Hi"}}
	chatShape = []struct {
		name string
		body obj
	}{
		{"plain", obj{"messages": hello, "max_tokens": 5}},
		{"choices", obj{"messages": hello, "max_tokens": 5, "n": 2, "seed": 7}},
		{"logprobs", obj{"messages": hello, "max_tokens": 5, "logprobs": true, "top_logprobs": 3}},
		{"stopped", obj{"messages": hello, "max_tokens": 50, "stop": []string{"e", "a", "i", "o", "s", "t"}}},
		{"ids", obj{"messages": hello, "max_tokens": 5, "return_token_ids": true}},
	}
	completionShape = []struct {
		name string
		body obj
	}{
		{"plain", obj{"prompt": "The boat", "max_tokens": 5}},
		{"prompts", obj{"prompt": []string{"The boat", "A river"}, "max_tokens": 3, "n": 2}},
		{"echo", obj{"prompt": "The boat", "max_tokens": 5, "echo": true, "logprobs": 2}},
		{"ids", obj{"prompt": []int{8, 9, 10}, "max_tokens": 5, "return_token_ids": true}},
	}
)

// TestGoldenOpenAI compares our answers with the shapes of the official client's types, and
// with the exchanges of the fixtures.
func TestGoldenOpenAI(t *testing.T) {
	s := serveDemo(t)
	n := 0
	for _, file := range []struct {
		name string
		run  func(*testing.T, *server, *shapes) int
	}{
		{"shapes_chat", goldenChat}, {"shapes_completions", goldenCompletions}, {"shapes_models", goldenModels}, {"shapes_error", goldenErrors},
	} {
		var sh shapes
		if !golden.JSON(t, golden.Path(t, "text", "openai", file.name+".json"), &sh) {
			continue
		}
		t.Run(file.name, func(t *testing.T) { n += file.run(t, s, &sh) })
	}
	n += goldenExamples(t)
	golden.Count(t, "text/openai", n)
}

func report(t *testing.T, wrong []string) {
	t.Helper()
	for _, w := range wrong {
		t.Error(w)
	}
}

func goldenChat(t *testing.T, s *server, sh *shapes) int {
	for _, c := range chatShape {
		t.Run(c.name, func(t *testing.T) { checkChat(t, s, sh, c.body) })
	}
	for _, c := range speakers {
		t.Run(c.name, func(t *testing.T) {
			checkChat(t, serve(t, generatetest.Speaking(t, c.speaker, engine.Options{})), sh, asked(nil))
		})
	}
	return 2 * (len(chatShape) + len(speakers))
}

// checkChat checks the shape of an answer and of its chunks.
func checkChat(t *testing.T, s *server, sh *shapes, body obj) {
	status, got := s.object("POST", chat, body)
	if status != 200 {
		t.Fatalf("status %d: %v", status, got)
	}
	report(t, sh.check("chat_completion.ChatCompletion", "chat", got))
	body = maps.Clone(body)
	body["stream_options"] = obj{"include_usage": true}
	checkChunks(t, sh, "chat_completion_chunk.ChatCompletionChunk", s.stream(chat, body))
}

func goldenCompletions(t *testing.T, s *server, sh *shapes) int {
	// The type of an answer serves for its chunks too, whose choices have not ended.
	chunks := shapes{maps.Clone(sh.Objects)}
	choice := maps.Clone(sh.Objects["completion_choice.CompletionChoice"])
	finish := choice["finish_reason"]
	finish.Nullable = true
	choice["finish_reason"] = finish
	chunks.Objects["completion_choice.CompletionChoice"] = choice
	for _, c := range completionShape {
		t.Run(c.name, func(t *testing.T) {
			status, got := s.object("POST", "/v1/completions", c.body)
			if status != 200 {
				t.Fatalf("status %d: %v", status, got)
			}
			report(t, sh.check("completion.Completion", "completion", got))
			body := maps.Clone(c.body)
			body["stream_options"] = obj{"include_usage": true}
			checkChunks(t, &chunks, "completion.Completion", s.stream("/v1/completions", body))
		})
	}
	return 2 * len(completionShape)
}

// checkChunks checks each chunk of a stream with usage, and their common fields.
func checkChunks(t *testing.T, sh *shapes, name string, data []string) {
	t.Helper()
	if len(data) < 3 || data[len(data)-1] != "[DONE]" {
		t.Fatalf("%d events, the last %q", len(data), data[len(data)-1])
	}
	first := parse(t, data[0])
	ended := map[any]bool{}
	for i, d := range data[:len(data)-1] {
		c := parse(t, d)
		report(t, sh.check(name, fmt.Sprintf("chunk %d", i), c))
		for _, key := range []string{"id", "created", "model", "object"} {
			if c[key] != first[key] {
				t.Errorf("chunk %d: %s is %v, was %v", i, key, c[key], first[key])
			}
		}
		usage, there := c["usage"]
		last := i == len(data)-2
		if !there || (usage != nil) != last {
			t.Errorf("chunk %d of %d: usage is %v", i, len(data)-1, usage)
		}
		for _, choice := range c["choices"].([]any) {
			index, finish := at(choice, "index"), at(choice, "finish_reason")
			if ended[index] {
				t.Errorf("chunk %d: choice %v goes on after its end", i, index)
			}
			ended[index] = finish != nil
		}
		if choices := c["choices"].([]any); (len(choices) == 0) != last {
			t.Errorf("chunk %d of %d has %d choices", i, len(data)-1, len(choices))
		}
	}
	for index, e := range ended {
		if !e {
			t.Errorf("choice %v has no end", index)
		}
	}
}

func goldenModels(t *testing.T, s *server, sh *shapes) int {
	_, list := s.object("GET", "/v1/models", nil)
	report(t, sh.check("model.Model", "list", at(list, "data", 0)))
	_, one := s.object("GET", "/v1/models/heft-demo", nil)
	report(t, sh.check("model.Model", "one", one))
	return 2
}

func goldenErrors(t *testing.T, s *server, sh *shapes) int {
	for _, c := range badInputs {
		_, got := s.object("POST", c.path, c.body)
		report(t, sh.check("error_object.ErrorObject", c.name, got["error"]))
	}
	return len(badInputs)
}
