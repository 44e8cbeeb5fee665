package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestMessagesModels: Anthropic's clients list models in pages; others keep OpenAI's list.
func TestMessagesModels(t *testing.T) {
	var list []*generate.Model
	for _, name := range []string{"org/a", "b", "c"} {
		m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
		m.Name = name
		list = append(list, m)
	}
	s := serveWith(t, api.Options{Models: list})
	get := func(path string) (int, string) { return s.anthropic("GET", path, "") }
	card := func(id string) string {
		return fmt.Sprintf(`{"type":"model","id":%q,"display_name":%[1]q,"created_at":"2023-11-14T22:13:20Z","lifecycle":"active","max_input_tokens":%d}`, id, list[0].Limit())
	}
	for path, want := range map[string]string{
		"/v1/models":                     `{"data":[` + card("org/a") + "," + card("b") + "," + card("c") + `],"has_more":false,"first_id":"org/a","last_id":"c"}`,
		"/v1/models?limit=1":             `{"data":[` + card("org/a") + `],"has_more":true,"first_id":"org/a","last_id":"org/a"}`,
		"/v1/models?limit=1&after_id=b":  `{"data":[` + card("c") + `],"has_more":false,"first_id":"c","last_id":"c"}`,
		"/v1/models?limit=1&before_id=c": `{"data":[` + card("b") + `],"has_more":true,"first_id":"b","last_id":"b"}`,
		"/v1/models?after_id=c":          `{"data":[],"has_more":false,"first_id":null,"last_id":null}`,
		"/v1/models/org%2Fa":             card("org/a"),
		"/v1/models/b":                   card("b"),
	} {
		if status, got := get(path); status != http.StatusOK || got != want {
			t.Errorf("%s: %d %s, want %s", path, status, got, want)
		}
	}
	for path, want := range map[string]int{"/v1/models/none": 404, "/v1/models?after_id=none": 400, "/v1/models?limit=0": 400, "/v1/models?after_id=b&before_id=c": 400} {
		if status, got := get(path); status != want || !strings.HasPrefix(got, `{"type":"error"`) {
			t.Errorf("%s: %d %s, want %d in Anthropic's shape", path, status, got, want)
		}
	}
	if _, got := s.object("GET", "/v1/models", nil); got["object"] != "list" {
		t.Errorf("without the header: %v", got)
	}
}

// anthropic sends a request as Anthropic's clients do. It returns the status and the text of the answer.
func (s *server) anthropic(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("anthropic-version", "2023-06-01")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, strings.TrimSpace(readAll(s.t, resp))
}

// TestFilesOfAnthropicsClientsHadOpenAIsErrors: their errors have Anthropic's shape, and say that the path is OpenAI's.
func TestFilesOfAnthropicsClientsHadOpenAIsErrors(t *testing.T) {
	s, _ := batchServer(t, t.TempDir(), 1<<20, engine.Options{})
	for _, r := range [][2]string{{"POST", "/v1/files"}, {"GET", "/v1/files"}, {"GET", "/v1/files/file-1"}, {"GET", "/v1/files/file-1/content"}, {"DELETE", "/v1/files/file-1"},
		{"POST", "/v1/batches"}, {"GET", "/v1/batches"}, {"GET", "/v1/batches/batch_1"}, {"POST", "/v1/batches/batch_1/cancel"}, {"POST", "/v1/messages/batches"}} {
		body := ""
		if r[0] == "POST" {
			body = "{}"
		}
		status, got := s.anthropic(r[0], r[1], body)
		if status != 404 || !strings.HasPrefix(got, `{"type":"error","error":{"type":"not_found_error"`) || !strings.Contains(got, "anthropic-version") || !strings.Contains(got, "OpenAI's") {
			t.Errorf("%s %s: %d %s", r[0], r[1], status, got)
		}
	}
	if status, got := s.anthropic("PUT", "/v1/files", "{}"); status != 405 || !strings.HasPrefix(got, `{"type":"error"`) {
		t.Errorf("PUT: %d %s", status, got)
	}
	if status, list := s.object("GET", "/v1/files", nil); status != 200 || list["object"] != "list" {
		t.Errorf("without the header: %d %v", status, list)
	}
}
