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
	"github.com/heftai/heft/internal/golden"
)

// exchange is a request with the answer of a server that passes the official client's checks.
// Its text is nonsense; the framing and the fields count.
type exchange struct {
	Request struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Body   json.RawMessage `json:"body"`
	} `json:"request"`
	Status      int             `json:"status"`
	ContentType string          `json:"content_type"`
	Response    json.RawMessage `json:"response"`
	SSE         string          `json:"response_sse"`
}

// later are what further endpoints and forced answers need.
func later(e exchange, body obj) bool {
	switch {
	case strings.HasPrefix(e.Request.Path, "/v1/responses"), strings.HasPrefix(e.Request.Path, "/v1/messages"):
		return true
	}
	choice := body["tool_choice"]
	_, named := choice.(obj)
	format := at(body, "response_format", "type")
	return choice == "required" || named || format != nil && format != "text"
}

func goldenExamples(t *testing.T) int {
	var file map[string]exchange
	golden.JSON(t, golden.Path(t, "text", "openai", "examples.json"), &file)
	n := 0
	for name, e := range file {
		var body any
		if err := json.Unmarshal(orNull(e.Request.Body), &body); err != nil {
			t.Fatal(err)
		}
		object, _ := body.(obj)
		if later(e, object) {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) { checkExchange(t, e, body) })
	}
	return n
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func checkExchange(t *testing.T, e exchange, body any) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 2048}, engine.Options{})
	m.Name = served(t, e, body)
	var keys []string
	if e.Status == 401 {
		keys = []string{"the-key"}
	}
	s := serve(t, m, keys...)
	want := obj{}
	if len(e.Response) > 0 {
		want = parse(t, string(e.Response))
	}
	if at(want, "error", "code") == "context_length_exceeded" { // the fixture leaves the long prompt out
		body = maps.Clone(body.(obj))
		body.(obj)["messages"] = []obj{{"role": "user", "content": strings.Repeat("the river ", 3000)}}
	}
	resp := s.do(e.Request.Method, e.Request.Path, body)
	if resp.StatusCode != e.Status || resp.Header.Get("Content-Type") != e.ContentType {
		t.Fatalf("status %d, %q; want %d, %q", resp.StatusCode, resp.Header.Get("Content-Type"), e.Status, e.ContentType)
	}
	_, text := s.text(e.Request.Method, e.Request.Path, body)
	if e.SSE != "" {
		checkEvents(t, framed(t, text), framed(t, e.SSE))
		return
	}
	got := parse(t, text)
	sameKeys(t, "", got, want)
	for _, key := range []string{"type", "param", "code"} {
		if g, w := at(got, "error", key), at(want, "error", key); g != w {
			t.Errorf("error.%s is %v, want %v", key, g, w)
		}
	}
}

// served is the model's name in an exchange.
func served(t *testing.T, e exchange, body any) string {
	if e.Status == 404 {
		return "another"
	}
	if len(e.Response) > 0 {
		r := parse(t, string(e.Response))
		for _, v := range []any{r["model"], at(r, "data", 0, "id"), r["id"]} {
			if name, ok := v.(string); ok {
				return name
			}
		}
	}
	if name, ok := at(body, "model").(string); ok {
		return name
	}
	return "mock"
}

// sameKeys checks that all that the fixture shows is there, of the same type. Numbers,
// texts and lengths are the model's own.
func sameKeys(t *testing.T, path string, got, want any) {
	t.Helper()
	if got == nil || want == nil {
		return
	}
	if g, w := fmt.Sprintf("%T", got), fmt.Sprintf("%T", want); g != w {
		t.Errorf("%s is %s, want %s", path, g, w)
		return
	}
	switch want := want.(type) {
	case map[string]any:
		if strings.Contains(path, ".top_logprobs[") && !strings.Contains(path, ".content[") {
			return // its keys are tokens
		}
		for k, w := range want {
			g, there := got.(map[string]any)[k]
			if !there {
				t.Errorf("%s.%s is missing", path, k)
			}
			sameKeys(t, path+"."+k, g, w)
		}
	case []any:
		for i := range min(len(want), len(got.([]any))) {
			sameKeys(t, fmt.Sprintf("%s[%d]", path, i), got.([]any)[i], want[i])
		}
	}
}

// checkEvents compares a stream's first, second and last chunks, and its end.
func checkEvents(t *testing.T, got, want []string) {
	t.Helper()
	if g, w := got[len(got)-1], want[len(want)-1]; g != w {
		t.Errorf("the stream ends with %q, want %q", g, w)
	}
	if w := parse(t, want[0]); w["usage"] == nil {
		if _, there := parse(t, got[0])["usage"]; there != hasKey(w, "usage") {
			t.Errorf("usage in the first chunk: %v, want %v", there, hasKey(w, "usage"))
		}
	}
	for _, pair := range [][2]int{{0, 0}, {1, 1}, {len(got) - 2, len(want) - 2}, {len(got) - 3, len(want) - 3}} {
		sameKeys(t, fmt.Sprintf("event %d", pair[0]), parse(t, got[pair[0]]), parse(t, want[pair[1]]))
	}
}

func hasKey(m map[string]any, key string) bool { _, ok := m[key]; return ok }
