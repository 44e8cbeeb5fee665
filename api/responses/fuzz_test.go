package responses

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// FuzzResponsesRequest: a body is refused with the client's error, or is a request that can run and whose items
// can be stored and read again.
func FuzzResponsesRequest(f *testing.F) {
	for _, seed := range []string{
		`{"input": "hi", "max_output_tokens": 3, "temperature": 0.5, "include": ["message.output_text.logprobs"], "top_logprobs": 2, "metadata": {"a": "b"}}`,
		`{"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "tools": [{"type": "function", "name": "f", "parameters": {}}], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}`,
		`{"input": [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}, {"type": "function_call_output", "call_id": "c", "output": "x"}]}`,
		`{"input": [{"type": "item_reference", "id": "msg_aaaaaaaaaaaaaaaaaaaaaaaaaa_0"}], "previous_response_id": "resp_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`,
		`{"input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}, "instructions": "b", "truncation": "auto"}`,
		`{"input": [{"role": "user", "content": null}]}`, `{"input": [[]], "tools": [3]}`, `{"input": {}}`, `[]`, `{"input": "\ud800", "reasoning": {"effort": "low"}}`,
	} {
		f.Add(seed)
	}
	m := generatetest.Spoken(f, &enginetest.Model{MaxLen: 256}, engine.Options{})
	s := New(generate.NewModels(m), store.NewMemory(1<<20, nil))
	f.Fuzz(func(t *testing.T, body string) {
		in, err := wire.ParseFields([]byte(body))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		q, err := s.decode(t.Context(), in, m)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if len(q.Prompt) == 0 || q.N != 1 {
			t.Errorf("a prompt of %d ids, n %d", len(q.Prompt), q.N)
		}
		b, err := encode(&record{Response: q.response, Input: q.items, Pieces: []pieces{}})
		if err != nil {
			t.Fatal(err)
		}
		var again record
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if c, err := encode(&again); err != nil || string(c) != string(b) {
			t.Errorf("stored %s\nread   %s", b, c)
		}
		for i, item := range again.Input {
			if item.Text != q.items[i].Text || item.Role != q.items[i].Role {
				t.Errorf("item %d was %+v, is %+v", i, q.items[i], item)
			}
		}
	})
}

// checkRefusal fails unless err blames the request.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var own *wire.Error
	if !errors.As(err, &own) || own.Kind.Status()/100 != 4 || own.Message == "" {
		t.Errorf("not the client's error: %#v", err)
	}
}

// FuzzRecord: a stored response of any contents is read or skipped, and sent again without a panic.
func FuzzRecord(f *testing.F) {
	f.Add(`{"response": {"id": "resp_a", "status": "completed", "output": [{"type": "message", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "ab"}]}]}, "input": [], "pieces": [{"bytes": [1, 9, -3], "tokens": [4]}]}`)
	f.Add(`{"response": {"id": "resp_a", "status": "failed", "output": [{"type": "function_call", "arguments": "{}"}, {"type": "reasoning"}]}, "pieces": [{"bytes": []}, {"bytes": [1]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var r record
		if json.Unmarshal([]byte(body), &r) != nil || !r.whole() {
			return
		}
		n := 0
		if err := r.replay(func(_ string, e any) error {
			n++
			_, err := encode(e)
			return err
		}); err != nil || n < 3 {
			t.Errorf("%d events, %v", n, err)
		}
		r.items()
	})
}
