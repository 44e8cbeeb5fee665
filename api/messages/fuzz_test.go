package messages

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

// FuzzMessagesRequest: a body is refused with the client's error, or is a request that can run.
func FuzzMessagesRequest(f *testing.F) {
	for _, seed := range []string{
		`{"max_tokens": 3, "messages": [{"role": "user", "content": "hi"}], "system": "be brief", "temperature": 0.5, "stop_sequences": ["x"]}`,
		`{"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}], "system": [{"type": "text", "text": "a"}], "thinking": {"type": "enabled", "budget_tokens": 2}}`,
		`{"max_tokens": 3, "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"a": [1]}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": [{"type": "text", "text": "no"}]}]}]}`,
		`{"max_tokens": 3, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}}}`,
		`{"max_tokens": 1, "messages": [{"role": "assistant", "content": []}]}`, `{"messages": [[]], "tools": [3]}`, `{"messages": {}}`, `[]`, `{"messages": [{"role": "user", "content": "\ud800"}], "max_tokens": 1}`,
	} {
		f.Add(seed)
	}
	m := generatetest.Spoken(f, &enginetest.Model{MaxLen: 256}, engine.Options{})
	f.Fuzz(func(t *testing.T, body string) {
		in, err := wire.ParseFields([]byte(body))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		q, err := decode(t.Context(), in, m, true)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if len(q.Prompt) == 0 || q.N != 1 || q.MaxTokens < 1 {
			t.Errorf("a prompt of %d ids, n %d, %d tokens", len(q.Prompt), q.N, q.MaxTokens)
		}
		in, err = wire.ParseFields([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if same, err := decode(t.Context(), in, m, false); err != nil || len(same.Prompt) != len(q.Prompt) {
			t.Errorf("counted %v, %v; the prompt has %d ids", same, err, len(q.Prompt))
		}
	})
}

// checkRefusal fails unless err blames the request and has a body in Anthropic's shape.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var own *wire.Error
	if !errors.As(err, &own) || own.Kind.Status()/100 != 4 || own.Message == "" {
		t.Fatalf("not the client's error: %#v", err)
	}
	b, err := json.Marshal(newErrorBody(own, nil))
	if err != nil || !json.Valid(b) {
		t.Errorf("%s, %v", b, err)
	}
}
