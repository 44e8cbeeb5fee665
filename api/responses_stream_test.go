package api_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// TestResponsesEventsOfReasoningTextAndCalls: every event, in order, of a response with all kinds of items.
func TestResponsesEventsOfReasoningTextAndCalls(t *testing.T) {
	s := serve(t, hermes(t))
	body := obj{"input": "Hi", "tools": weatherTool, "temperature": 0}
	events := s.events(body)
	message := func(kind string) []string {
		return []string{"output_item.added", "content_part.added", kind + ".delta", kind + ".done", "content_part.done", "output_item.done"}
	}
	call := []string{"output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"}
	want := slices.Concat([]string{"created", "in_progress"}, message("reasoning_text"), message("output_text"), call, call, []string{"completed"})
	if got := names(events); !slices.Equal(got, want) {
		t.Fatalf("events\n%v, want\n%v", got, want)
	}
	final := at(events[len(events)-1].data, "response").(map[string]any)
	output := final["output"].([]any)
	for i, kind := range []string{"reasoning", "message", "function_call", "function_call"} {
		if at(output, i, "type") != kind || at(output, i, "status") != "completed" {
			t.Errorf("item %d: %v", i, at(output, i))
		}
	}
	if at(output, 0, "content", 0, "text") != "Where? There." || says(final) != "I look." || at(output, 3, "arguments") != "{\"city\": \"世\\n\"}" {
		t.Errorf("output %v", output)
	}
	if at(final, "usage", "output_tokens_details", "reasoning_tokens") == at(final, "usage", "output_tokens") {
		t.Errorf("usage %v", final["usage"])
	}
	checkDeltas(t, events)
	delete(body, "stream")
	whole := s.respond(body)
	strip := func(r map[string]any) string { // ids differ
		id := strings.TrimPrefix(r["id"].(string), "resp_")
		text := strings.ReplaceAll(mustJSON(t, r["output"]), id, "ID")
		for _, item := range r["output"].([]any) {
			if call, ok := at(item, "call_id").(string); ok {
				text = strings.ReplaceAll(text, call, "CALL")
			}
		}
		return text
	}
	if strip(whole) != strip(final) {
		t.Errorf("at once   %s\nas events %s", strip(whole), strip(final))
	}
}

// checkDeltas checks that the deltas of each item make its text, and that indices and ids belong together.
func checkDeltas(t *testing.T, events []event) {
	t.Helper()
	texts := map[string]string{}
	ids := map[string]string{}
	for _, e := range events {
		index := fmt.Sprint(e.data["output_index"])
		if e.name == "response.output_item.added" {
			ids[index], _ = at(e.data, "item", "id").(string)
		}
		if id, ok := e.data["item_id"].(string); ok && id != ids[index] {
			t.Errorf("%s is of item %s, item %s is %s", e.name, id, index, ids[index])
		}
		if delta, ok := e.data["delta"].(string); ok {
			texts[index] += delta
		}
		for _, key := range []string{"text", "arguments"} {
			if whole, ok := e.data[key].(string); ok && whole != texts[index] {
				t.Errorf("%s has %q, the deltas %q", e.name, whole, texts[index])
			}
		}
	}
}

// TestResponsesAreSentAgain: a stored response as a stream has the events of its first stream, from any of them on.
func TestResponsesAreSentAgain(t *testing.T) {
	for name, body := range map[string]obj{
		"items":    {"input": "Hi", "tools": weatherTool, "temperature": 0},
		"logprobs": {"input": "Hi", "tools": weatherTool, "include": []string{"message.output_text.logprobs"}, "top_logprobs": 2, "max_output_tokens": 20},
		"sealed":   {"input": "Hi", "include": []string{"reasoning.encrypted_content"}, "max_output_tokens": 9},
	} {
		s := serve(t, hermes(t))
		events := s.events(body)
		id := at(events[0].data, "response", "id").(string)
		for _, after := range []int{-1, 0, 7, len(events) - 2, len(events) + 3} {
			path := fmt.Sprintf("%s/%s?stream=true", responsesPath, id)
			if after >= 0 {
				path += fmt.Sprintf("&starting_after=%d", after)
			}
			again := s.readEvents(s.doStream("GET", path), after+1)
			if want := events[min(after+1, len(events)):]; !reflect.DeepEqual(again, want) && len(again)+len(want) > 0 {
				t.Errorf("%s after %d: %d events\n%v\nwant %d\n%v", name, after, len(again), again, len(want), want)
			}
		}
		status, r := s.object("GET", responsesPath+"/"+id, nil)
		if final := events[len(events)-1].data["response"]; status != 200 || !reflect.DeepEqual(any(r), final) {
			t.Errorf("%s: %d\n%v\nwant\n%v", name, status, r, final)
		}
	}
}

// doStream is do; a stream may have no event but its end.
func (s *server) doStream(method, path string) *http.Response {
	s.t.Helper()
	return s.do(method, path, nil)
}

func TestResponsesThatEndEarlyAreIncomplete(t *testing.T) {
	s := serve(t, hermes(t))
	for _, c := range []struct {
		tokens int
		last   string // item
	}{{12, "reasoning"}, {30, "message"}, {60, "function_call"}} {
		events := s.events(obj{"input": "Hi", "tools": weatherTool, "max_output_tokens": c.tokens, "temperature": 0})
		last := events[len(events)-1]
		r := last.data["response"].(map[string]any)
		output := r["output"].([]any)
		item := output[len(output)-1]
		if last.name != "response.incomplete" || r["status"] != "incomplete" || at(r, "incomplete_details", "reason") != "max_output_tokens" || r["completed_at"] != nil ||
			at(item, "type") != c.last || at(item, "status") != "incomplete" {
			t.Errorf("after %d tokens %s: %v", c.tokens, last.name, r)
		}
		checkDeltas(t, events)
	}
}

// slow is a model whose responses take long, so that tests can read them in progress.
func slow(t *testing.T) *server {
	return serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate,
		Says: "<think>\nHm.\n</think>\n\n" + strings.Repeat("word ", 20), Delay: 2 * time.Millisecond}, engine.Options{}))
}

// started begins a stream and returns the id of its response.
func (s *server) started() (id string, r *http.Response) {
	s.t.Helper()
	r = s.do("POST", responsesPath, obj{"input": "Hi", "stream": true, "ignore_eos": true, "max_output_tokens": 3000})
	head := make([]byte, 400)
	if _, err := r.Body.Read(head); err != nil {
		s.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(head), `"id":"`)
	id, _, ended := strings.Cut(rest, `"`)
	if !ok || !ended {
		s.t.Fatalf("the stream begins with %s", head)
	}
	return id, r
}

func TestResponsesInProgress(t *testing.T) {
	s := slow(t)
	id, first := s.started()
	path := responsesPath + "/" + id
	status, r := s.object("GET", path, nil)
	if status != 200 || r["status"] != "in_progress" || r["usage"] != nil {
		t.Errorf("retrieved: %d %v", status, r)
	}
	checkResource(t, r)
	if status, l := s.object("GET", path+"/input_items", nil); status != 200 || at(l, "data", 0, "content", 0, "text") != "Hi" {
		t.Errorf("input: %d %v", status, l)
	}
	follower := s.do("GET", path+"?stream=true", nil)
	status, r = s.object("POST", path+"/cancel", nil)
	if status != 200 || r["status"] != "cancelled" {
		t.Errorf("cancelled: %d %v", status, r)
	}
	checkResource(t, r)
	events := s.readEvents(follower, 0)
	if last := events[len(events)-1]; last.name != "response.incomplete" || !reflect.DeepEqual(last.data["response"], any(r)) {
		t.Errorf("the follower's last event is %v", last)
	}
	checkDeltas(t, events)
	if body := readAll(t, first); !strings.Contains(body, "event: response.incomplete\n") || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %.300q", body[max(0, len(body)-300):])
	}
	if status, again := s.object("GET", path, nil); status != 200 || !reflect.DeepEqual(again, r) {
		t.Errorf("retrieved: %d %v", status, again)
	}
	if status, again := s.object("POST", path+"/cancel", nil); status != 200 || !reflect.DeepEqual(again, r) {
		t.Errorf("cancelled twice: %d %v", status, again)
	}
}

func TestDeletingAResponseInProgressEndsIt(t *testing.T) {
	s := slow(t)
	id, first := s.started()
	if status, r := s.object("DELETE", responsesPath+"/"+id, nil); status != 200 || r["deleted"] != true || r["id"] != id {
		t.Errorf("deleted: %d %v", status, r)
	}
	if body := readAll(t, first); !strings.Contains(body, `"status":"cancelled"`) {
		t.Errorf("the stream ends with %.300q", body[max(0, len(body)-300):])
	}
	if status, _ := s.object("GET", responsesPath+"/"+id, nil); status != 404 {
		t.Errorf("retrieved: %d", status)
	}
}

// TestAResponseWhoseClientDisconnectedIsKept: with the output until then.
func TestAResponseWhoseClientDisconnectedIsKept(t *testing.T) {
	s := slow(t)
	id, first := s.started()
	_ = first.Body.Close()
	for {
		status, r := s.object("GET", responsesPath+"/"+id, nil)
		if status != 200 || r["status"] != "in_progress" && r["status"] != "cancelled" {
			t.Fatalf("retrieved: %d %v", status, r)
		}
		if r["status"] == "cancelled" {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestResponsesThatFail: before the stream begins with a status, then with an error and the failed response.
func TestResponsesThatFail(t *testing.T) {
	body := obj{"input": "Hi", "max_output_tokens": 50, "ignore_eos": true, "seed": 3} // of which no text may be half a character
	s := serve(t, generatetest.Spoken(t, failing(3), engine.Options{}))
	if status, e := s.object("POST", responsesPath, body); status != 500 || !strings.Contains(at(e, "error", "message").(string), "ends early") {
		t.Errorf("at once: %d %v", status, e)
	}
	s = serve(t, generatetest.Spoken(t, failing(3), engine.Options{}))
	events := s.events(body)
	n := len(events)
	if n < 5 || events[n-2].name != "error" || events[n-1].name != "response.failed" {
		t.Fatalf("events %v", names(events))
	}
	r := events[n-1].data["response"].(map[string]any)
	checkResource(t, r)
	if r["status"] != "failed" || !strings.Contains(at(r, "error", "message").(string), "ends early") || at(r, "output", 0, "status") != "incomplete" ||
		events[n-2].data["message"] != at(r, "error", "message") || events[n-2].data["code"] != "server_error" {
		t.Errorf("the error %v, the response %v", events[n-2].data, r)
	}
	if status, again := s.object("GET", responsesPath+"/"+r["id"].(string), nil); status != 200 || !reflect.DeepEqual(again, r) {
		t.Errorf("retrieved: %d %v", status, again)
	}
}
