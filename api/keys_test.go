package api_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/keys"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// keyed serves two models to the keys of a file.
func keyed(t *testing.T, file string) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := keys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	one := generatetest.Spoken(t, &enginetest.Model{}, engine.Options{})
	two := generatetest.Spoken(t, &enginetest.Model{}, engine.Options{})
	two.Name = "second"
	return serveWith(t, api.Options{Models: []*generate.Model{one, two}, APIKeys: []string{"plain"}, Keys: set})
}

// TestKeysOfAFile: named keys work next to plain ones; their models are the only ones that they see; log and metrics
// have names and never keys.
func TestKeysOfAFile(t *testing.T) {
	var log bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	s := keyed(t, "- {name: alice, key: secret-a}\n- {name: bob, key: secret-b, models: [second]}")
	ask := obj{"prompt": "a", "max_tokens": 2}
	for _, c := range []struct {
		key    string
		body   obj
		status int
		model  string
	}{
		{"plain", ask, 200, ""}, {"secret-a", ask, 200, ""}, {"wrong", ask, 401, ""}, {"", ask, 401, ""},
		{"secret-b", ask, 200, "second"}, {"secret-b", obj{"prompt": "a", "model": "second", "max_tokens": 2}, 200, "second"},
		{"secret-b", obj{"prompt": "a", "model": s.first(t, "secret-a")}, 403, ""}, {"secret-b", obj{"prompt": "a", "model": "none"}, 404, ""},
	} {
		s.key = c.key
		status, r := s.object("POST", "/v1/completions", c.body)
		if status != c.status || c.model != "" && r["model"] != c.model {
			t.Errorf("key %q, %v: status %d, %v", c.key, c.body, status, r)
		}
	}
	s.key = "secret-b"
	_, list := s.object("GET", "/v1/models", nil)
	_, tags := s.object("GET", "/api/tags", nil)
	if len(list["data"].([]any)) != 1 || at(list, "data", 0, "id") != "second" || len(tags["models"].([]any)) != 1 {
		t.Errorf("bob sees %v and %v", list, tags)
	}
	s.key = ""
	_, metrics := s.text("GET", "/metrics", nil)
	for _, line := range []string{`heft_key_requests_total{admitted="true",key="alice"} 1`, `heft_key_tokens_total{key="bob",kind="generation"} 4`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	text := log.String()
	if !strings.Contains(text, "key=alice") || !strings.Contains(text, "key=bob") || strings.Contains(text+metrics, "secret-") {
		t.Errorf("the log has a key, or no names: %s", text)
	}
}

// first is the first model that a key sees.
func (s *server) first(t *testing.T, key string) string {
	t.Helper()
	s.key = key
	return s.model()
}

// TestLimitsOfKeysAreErrorsOfEachDialect: 429 with Retry-After, in the shape that each client reads; lists are free.
func TestLimitsOfKeysAreErrorsOfEachDialect(t *testing.T) {
	s := keyed(t, "- {name: alice, key: secret-a, requests_per_minute: 1}\n- {name: bob, key: secret-b, tokens_per_minute: 3}")
	s.key = "secret-a"
	hi := obj{"messages": []obj{{"role": "user", "content": "a"}}, "max_tokens": 1}
	if status, r := s.text("POST", "/v1/chat/completions", hi); status != 200 {
		t.Fatal(status, r)
	}
	for path, want := range map[string]string{"/v1/chat/completions": `"type":"rate_limit_error"`, "/v1/messages": `"type":"rate_limit_error"`, "/api/chat": `{"error":"The API key alice`} {
		r := s.do("POST", path, hi)
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 429 || !strings.Contains(string(b), want) || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, Retry-After %q, %s", path, r.StatusCode, r.Header.Get("Retry-After"), b)
		}
	}
	if status, _ := s.text("GET", "/v1/models", nil); status != 200 {
		t.Errorf("a list: status %d", status)
	}
	s.key = "secret-b"
	first, _ := s.text("POST", "/v1/completions", obj{"prompt": "a b c", "max_tokens": 4})
	second, text := s.text("POST", "/v1/completions", obj{"prompt": "a", "max_tokens": 1})
	if first != 200 || second != 429 || !strings.Contains(text, "tokens per minute") {
		t.Errorf("tokens: status %d, then %d: %s", first, second, text)
	}
}

// TestTheTokensOfAClientThatLeavesAreCounted: the tokens computed for a stream that its client left are charged.
func TestTheTokensOfAClientThatLeavesAreCounted(t *testing.T) {
	s := keyed(t, "- {name: alice, key: secret-a}")
	s.key = "secret-a"
	r := s.do("POST", "/v1/completions", obj{"prompt": "a", "max_tokens": 900, "stream": true, "ignore_eos": true})
	if _, err := io.ReadFull(r.Body, make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	for {
		_, metrics := s.text("GET", "/metrics", nil)
		if strings.Contains(metrics, `heft_key_requests_running{key="alice"} 0`) {
			if strings.Contains(metrics, `heft_key_tokens_total{key="alice",kind="generation"} 0`) || strings.Contains(metrics, `heft_key_tokens_total{key="alice",kind="prompt"} 0`) {
				t.Error("no token was counted")
			}
			return
		}
	}
}
