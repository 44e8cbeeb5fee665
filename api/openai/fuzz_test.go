package openai

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// fuzzed is a quick model with text.
func fuzzed(f *testing.F) *generate.Model {
	return generatetest.Spoken(f, &enginetest.Model{MaxLen: 256}, engine.Options{})
}

// checkRefusal fails unless err blames the request.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var own *wire.Error
	if !errors.As(err, &own) || own.Kind.Status()/100 != 4 || own.Message == "" {
		t.Errorf("not the client's error: %#v", err)
	}
}

func FuzzCompletionRequest(f *testing.F) {
	for _, seed := range []string{
		`{"prompt": "hi", "max_tokens": 3, "temperature": 0.5, "stop": ["a", "b"], "logit_bias": {"10": -3.5}}`,
		`{"prompt": [1, 2, 3], "echo": true, "logprobs": 2, "n": 2, "seed": -1, "stream": true, "stream_options": {"include_usage": true}}`,
		`{"prompt": [[1], [2, 3]], "best_of": 1, "suffix": null, "ignore_eos": true, "stop_token_ids": [7]}`,
		`{"prompt": ["a", "b"], "model": "fake", "top_k": 5.0, "min_p": 1e-3}`,
		`{"prompt": [null]}`, `{"prompt": 1e999}`, `[]`, `nul`, `{"prompt": "\ud800"}`,
	} {
		f.Add(seed)
	}
	m := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		in, err := wire.ParseFields([]byte(body))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		q, err := decodeCompletion(t.Context(), in, m)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if len(q.prompts) == 0 || len(q.prompts) > maxPrompts || q.N < 1 || q.N > maxN {
			t.Errorf("%d prompts, n %d", len(q.prompts), q.N)
		}
		if q.echo && len(q.texts) != len(q.prompts) {
			t.Errorf("%d texts of %d prompts", len(q.texts), len(q.prompts))
		}
		if err := q.Params.Validate(m.Vocab()); err != nil {
			t.Errorf("params that the engine refuses: %v", err)
		}
	})
}

func FuzzChatRequest(f *testing.F) {
	for _, seed := range []string{
		`{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "logprobs": true, "top_logprobs": 2}`,
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "tools": [{"type": "function", "function": {"name": "f"}}]}`,
		`{"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}], "continue_final_message": "content"}`,
		`{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"x": [1, {"y": null}]}, "response_format": {"type": "text"}}`,
		`{"messages": [{"role": "assistant", "reasoning": "a", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"}], "tool_choice": "none", "parallel_tool_calls": false}`,
		`{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": null}}], "tool_choice": {"type": "function"}, "reasoning_effort": "low"}`,
		`{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1e999}}, null]}], "tools": [{"type": 1, "function": []}]}`,
		`{"messages": [{"role": "system", "content": null}, 3]}`, `{"messages": {}}`, `{"messages": [{"role": "user", "content": {"a": 1}}]}`,
	} {
		f.Add(seed)
	}
	m := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		in, err := wire.ParseFields([]byte(body))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		q, err := decodeChat(t.Context(), in, m)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if len(q.Prompt) == 0 || q.N < 1 || q.N > maxN {
			t.Errorf("a prompt of %d ids, n %d", len(q.Prompt), q.N)
		}
	})
}

// TestStreamsSendKeepAlivesDuringLongPrompts: a stream is not silent while a long prompt is computed.
func TestStreamsSendKeepAlivesDuringLongPrompts(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{Delay: 60 * time.Millisecond}, engine.Options{})
	s := New(generate.NewModels(m))
	s.keepAlive = 5 * time.Millisecond
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"prompt": "a", "stream": true, "max_tokens": 2, "ignore_eos": true}`))
	s.Completions(w, r)
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(body), ": still at work\n\n") || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("body %q", body)
	}
	if !w.Flushed {
		t.Error("nothing was flushed")
	}
}

// TestStreamsWithHiddenReasoningSendKeepAlives: a stream that hides the reasoning is not silent while the
// model reasons.
func TestStreamsWithHiddenReasoningSendKeepAlives(t *testing.T) {
	m := generatetest.Speaking(t, generatetest.Speaker{Template: "<think>", Says: "a rather long thought</think>Yes.", Delay: 4 * time.Millisecond}, engine.Options{})
	s := New(generate.NewModels(m))
	s.keepAlive = 20 * time.Millisecond
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(
		`{"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "stream": true, "include_reasoning": false}`))
	s.ChatCompletions(w, r)
	body := w.Body.String()
	if !strings.Contains(body, ": still at work\n\n") || strings.Contains(body, "thought") || !strings.Contains(body, `"content":"Y`) {
		t.Errorf("body %q", body)
	}
}

// TestErrorsOfUnknownKindAre500WithTheReason: an error of unknown kind is the server's, with its reason.
func TestErrorsOfUnknownKindAre500WithTheReason(t *testing.T) {
	w := httptest.NewRecorder()
	WriteError(w, errors.New("torn"))
	if body := w.Body.String(); w.Code != 500 || !strings.Contains(body, `"type":"server_error"`) || !strings.Contains(body, `"message":"torn"`) {
		t.Errorf("status %d, body %s", w.Code, body)
	}
}
