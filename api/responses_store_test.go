package api_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// TestResponsesBelongToTheirKey: another key finds neither the response nor its items.
func TestResponsesBelongToTheirKey(t *testing.T) {
	s := serveDemo(t, "one", "two")
	s.key = "one"
	r := s.respond(obj{"input": "Hi", "max_output_tokens": 3})
	path := responsesPath + "/" + r["id"].(string)
	item := at(r, "output", 0, "id")
	s.key = "two"
	for _, c := range [][2]string{{"GET", path}, {"GET", path + "?stream=true"}, {"DELETE", path}, {"POST", path + "/cancel"}, {"GET", path + "/input_items"}} {
		if status, e := s.object(c[0], c[1], nil); status != 404 || !strings.Contains(at(e, "error", "message").(string), "not found") {
			t.Errorf("%v: %d %v", c, status, e)
		}
	}
	for param, body := range map[string]obj{
		"previous_response_id": {"input": "Hi", "previous_response_id": r["id"]},
		"input[0].id":          {"input": []obj{{"type": "item_reference", "id": item}}},
	} {
		if status, e := s.object("POST", responsesPath, body); status != 400 || at(e, "error", "param") != param {
			t.Errorf("%s: %d %v", param, status, e)
		}
	}
	s.key = "one"
	if status, _ := s.object("GET", path, nil); status != 200 {
		t.Errorf("its own key: %d", status)
	}
}

func TestResponsesThatAreNotThere(t *testing.T) {
	s := serveDemo(t)
	kept := s.respond(obj{"input": "Hi", "max_output_tokens": 3})
	unkept := s.respond(obj{"input": "Hi", "max_output_tokens": 3, "store": false})
	gone := s.respond(obj{"input": "Hi", "max_output_tokens": 3, "previous_response_id": kept["id"]})
	if status, d := s.object("DELETE", responsesPath+"/"+kept["id"].(string), nil); status != 200 || mustJSON(t, d) != fmt.Sprintf(`{"deleted":true,"id":%q,"object":"response"}`, kept["id"]) {
		t.Errorf("deleted: %d %v", status, d)
	}
	for _, id := range []any{kept["id"], unkept["id"], "resp_x", "..%2f..%2fetc", strings.Repeat("x", 2000), "resp_" + strings.Repeat("a", 26)} {
		for _, method := range []string{"GET", "DELETE"} {
			if status, e := s.object(method, fmt.Sprintf("%s/%s", responsesPath, id), nil); status != 404 || at(e, "error", "type") != "invalid_request_error" {
				t.Errorf("%s %.30s: %d %v", method, id, status, e)
			}
		}
	}
	for _, id := range []any{kept["id"], gone["id"], "resp_x", ""} { // the beginning of gone is deleted
		status, e := s.object("POST", responsesPath, obj{"input": "Hi", "previous_response_id": id})
		if status != 400 || at(e, "error", "code") != "previous_response_not_found" || at(e, "error", "param") != "previous_response_id" {
			t.Errorf("after %v: %d %v", id, status, e)
		}
	}
	if unkept["store"] != false || kept["store"] != true {
		t.Errorf("store %v and %v", unkept["store"], kept["store"])
	}
}

// TestResponsesInMemoryAreBounded: the oldest conversations are dropped, and a response that is too large is an error.
func TestResponsesInMemoryAreBounded(t *testing.T) {
	m, _, _ := generatetest.Demo(t, engine.Options{})
	s := serveWith(t, api.Options{Models: []*generate.Model{m}, Store: store.NewMemory(8<<10, nil)})
	first := s.respond(obj{"input": "Hi", "max_output_tokens": 3})
	for range 6 {
		s.respond(obj{"input": "Hi", "max_output_tokens": 3, "metadata": obj{"a": strings.Repeat("x", 500)}})
	}
	if status, _ := s.object("GET", responsesPath+"/"+first["id"].(string), nil); status != 404 {
		t.Errorf("the first response is still there: %d", status)
	}
	labels := obj{}
	for i := range 16 {
		labels[fmt.Sprint(i)] = strings.Repeat("x", 512)
	}
	large := s.respond(obj{"input": "Hi", "max_output_tokens": 3, "metadata": labels})
	if large["store"] != false {
		t.Errorf("a response larger than the store has store %v", large["store"])
	}
}

func TestInputItemsAreListed(t *testing.T) {
	s := serve(t, hermes(t))
	items := []any{obj{"role": "system", "content": "Be kind."}, obj{"type": "message", "role": "user", "content": []obj{{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}}},
		obj{"type": "reasoning", "summary": []obj{}, "content": []obj{{"type": "reasoning_text", "text": "hm"}}},
		obj{"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "id": "mine"}, obj{"type": "function_call_output", "call_id": "c1", "output": "sun"}}
	r := s.respond(obj{"input": items, "max_output_tokens": 3})
	path := fmt.Sprintf("%s/%s/input_items", responsesPath, r["id"])
	_, l := s.object("GET", path+"?order=asc", nil)
	kinds := ""
	for _, item := range l["data"].([]any) {
		kinds += at(item, "type").(string) + " "
		if id, _ := at(item, "id").(string); id == "" {
			t.Errorf("item %v", item)
		}
	}
	if kinds != "message message reasoning function_call function_call_output " || l["has_more"] != false || l["first_id"] != at(l, "data", 0, "id") || l["last_id"] != at(l, "data", 4, "id") {
		t.Errorf("list %v", l)
	}
	if at(l, "data", 1, "content", 1, "text") != "b" || at(l, "data", 3, "id") != "mine" || at(l, "data", 4, "output") != "sun" {
		t.Errorf("data %v", l["data"])
	}
	_, latest := s.object("GET", path+"?limit=2", nil)
	if at(latest, "data", 0, "type") != "function_call_output" || latest["has_more"] != true {
		t.Errorf("the latest %v", latest)
	}
	_, rest := s.object("GET", path+"?limit=2&after=mine&include[]=x", nil)
	if at(rest, "data", 0, "type") != "reasoning" || rest["has_more"] != true {
		t.Errorf("after %v", rest)
	}
	for _, bad := range []string{"?limit=0", "?limit=x", "?order=up", "?after=nope"} {
		if status, e := s.object("GET", path+bad, nil); status != 400 || at(e, "error", "param") == nil {
			t.Errorf("%s: %d %v", bad, status, e)
		}
	}
}

// TestResponsesToolLoop: calls and their outputs make the same prompt by previous_response_id, by items and by
// references.
func TestResponsesToolLoop(t *testing.T) {
	s := serve(t, hermes(t))
	first := obj{"input": "Hi", "tools": weatherTool, "temperature": 0}
	r := s.respond(maps.Clone(first))
	outputs := []any{}
	for i := 2; i < 4; i++ {
		outputs = append(outputs, obj{"type": "function_call_output", "call_id": at(r, "output", i, "call_id"), "output": []obj{{"type": "input_text", "text": "sun"}}})
	}
	prompt := func(body obj) any {
		t.Helper()
		status, count := s.object("POST", responsesPath+"/input_tokens", body)
		if status != 200 {
			t.Fatalf("%d %v", status, count)
		}
		return count["input_tokens"]
	}
	want := prompt(obj{"previous_response_id": r["id"], "input": outputs, "tools": weatherTool})
	items, references := []any{obj{"role": "user", "content": "Hi"}}, []any{obj{"role": "user", "content": "Hi"}}
	for _, item := range r["output"].([]any) {
		items = append(items, item)
		references = append(references, obj{"type": "item_reference", "id": at(item, "id")})
	}
	for name, input := range map[string][]any{"items": append(items, outputs...), "references": append(references, outputs...)} {
		if got := prompt(obj{"input": input, "tools": weatherTool}); got != want {
			t.Errorf("%s: a prompt of %v tokens, want %v", name, got, want)
		}
	}
	again := s.respond(obj{"previous_response_id": r["id"], "input": outputs, "tools": weatherTool, "temperature": 0})
	if again["previous_response_id"] != r["id"] || again["status"] != "completed" {
		t.Errorf("response %v", again)
	}
	status, e := s.object("POST", responsesPath, obj{"input": outputs})
	if status != 400 || at(e, "error", "param") != "input[0].call_id" || !strings.Contains(at(e, "error", "message").(string), "No tool call found") {
		t.Errorf("outputs without calls: %d %v", status, e)
	}
}

// TestReasoningIsSentBackSealed: a client that keeps only encrypted_content loses no reasoning.
func TestReasoningIsSentBackSealed(t *testing.T) {
	s := serve(t, hermes(t))
	r := s.respond(obj{"input": "Hi", "tools": weatherTool, "include": []string{"reasoning.encrypted_content"}, "store": false})
	sealed, _ := at(r, "output", 0, "encrypted_content").(string)
	if sealed == "" {
		t.Fatalf("output %v", r["output"])
	}
	count := func(reasoning obj) any {
		_, c := s.object("POST", responsesPath+"/input_tokens", obj{"input": []any{obj{"role": "user", "content": "Hi"}, reasoning, at(r, "output", 1), obj{"role": "user", "content": "And?"}}})
		return c["input_tokens"]
	}
	whole := count(obj{"type": "reasoning", "summary": []obj{}, "content": []obj{{"type": "reasoning_text", "text": "Where? There."}}})
	if got := count(obj{"type": "reasoning", "summary": []obj{}, "encrypted_content": sealed}); got != whole || whole == nil {
		t.Errorf("a prompt of %v tokens, want %v", got, whole)
	}
	if none := count(obj{"type": "reasoning", "summary": []obj{}, "encrypted_content": "of another server"}); none == whole {
		t.Errorf("foreign content became a prompt of %v tokens", none)
	}
}
