package openai_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// limited serves completions of m with so many bytes for requests.
func limited(m *generate.Model, bytes int64) func(body string) (int, string) {
	s := openai.New(generate.NewModels(m))
	errors := func(*http.Request) wire.ErrorWriter { return openai.WriteError }
	h := wire.NewMemory(bytes, nil).Limit(errors)(http.HandlerFunc(s.Completions))
	return func(body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
}

// TestCollectedAnswersWithLogProbsReserveMemory: the memory of a collected answer with log-probabilities was
// not counted.
func TestCollectedAnswersWithLogProbsReserveMemory(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{MaxLen: 1 << 14, Pages: 1 << 14}, engine.Options{})
	send := limited(m, 1<<20)
	for _, c := range []struct {
		name, fields string
		tokens, want int
	}{
		{"few log-probabilities", `"logprobs": 20`, 100, 200},
		{"many", `"logprobs": 20`, 2000, 503},
		{"several choices", `"logprobs": 20, "n": 8`, 200, 503},
		{"ids", `"return_token_ids": true`, 8000, 503},
		{"nothing that is shown", `"n": 2`, 8000, 200},
		{"a stream", `"logprobs": 20, "stream": true`, 2000, 200},
	} {
		code, body := send(fmt.Sprintf(`{"prompt": [1], "ignore_eos": true, "max_tokens": %d, %s}`, c.tokens, c.fields))
		if code != c.want || code == 503 && !strings.Contains(body, "no memory left for this answer") {
			t.Errorf("%s: got status %d, want %d: %.300s", c.name, code, c.want, body)
		}
	}
}

// TestPromptLogProbsAreCounted: the log-probabilities of a long prompt take memory of the requests, before they are computed.
func TestPromptLogProbsAreCounted(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{MaxLen: 1 << 14, Pages: 1 << 14}, engine.Options{})
	send := limited(m, 1<<20)
	prompt := strings.TrimSuffix(strings.Repeat("1,", 3000), ",")
	for fields, want := range map[string]int{`"prompt_logprobs": 20`: 413, `"prompt_logprobs": null`: 200} {
		if code, body := send(fmt.Sprintf(`{"prompt": [%s], "max_tokens": 1, %s}`, prompt, fields)); code != want {
			t.Errorf("%s: got status %d, want %d: %.300s", fields, code, want, body)
		}
	}
}
