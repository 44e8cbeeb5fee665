package ollama

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// FuzzOllamaRequest: a body is refused with the client's error, or is a request that can run.
func FuzzOllamaRequest(f *testing.F) {
	for _, seed := range []string{
		`{"messages": [{"role": "user", "content": "hi"}], "options": {"temperature": 0.5, "stop": ["x"], "num_ctx": 100, "seed": -1, "num_predict": -2}, "think": "low", "format": "json"}`,
		`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]}, {"role": "tool", "tool_name": "f", "content": "b"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}`,
		`{"prompt": "a", "context": [1, 2], "system": "b", "format": {"type": "object"}, "logprobs": true, "top_logprobs": 2}`,
		`{"prompt": "a", "raw": true, "stream": false, "options": {"repeat_last_n": 0, "repeat_penalty": 2}}`,
		`{}`, `{"messages": []}`, `{"messages": [[]], "tools": [3], "options": []}`, `[]`, `{"prompt": "\ud800"}`, `{"context": [-1]}`,
	} {
		f.Add(seed)
	}
	m := generatetest.Spoken(f, &enginetest.Model{MaxLen: 256}, engine.Options{})
	f.Fuzz(func(t *testing.T, body string) {
		for _, decode := range []func(*wire.Fields) (*request, error){
			func(in *wire.Fields) (*request, error) { return decodeChat(t.Context(), in, m) },
			func(in *wire.Fields) (*request, error) { return decodeGenerate(t.Context(), in, m) },
		} {
			in, err := wire.ParseFields([]byte(body))
			if err != nil {
				checkRefusal(t, err)
				return
			}
			q, err := decode(in)
			if err != nil {
				checkRefusal(t, err)
				continue
			}
			if !q.empty && (len(q.Prompt) == 0 && !q.Continues || q.N != 1) {
				t.Errorf("a prompt of %d ids, n %d", len(q.Prompt), q.N)
			}
		}
	})
}

// checkRefusal fails unless err blames the request and has a body in Ollama's shape.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var own *wire.Error
	if !errors.As(err, &own) || own.Kind.Status()/100 != 4 || own.Message == "" {
		t.Fatalf("not the client's error: %#v", err)
	}
	b, err := json.Marshal(newErrorBody(own))
	if err != nil || !json.Valid(b) {
		t.Errorf("%s, %v", b, err)
	}
}
