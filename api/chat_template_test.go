package api_test

import (
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	words "github.com/heftai/heft/text"
)

// TestToolUseTemplateIsUsed: a model may have a template of its own for conversations with
// tools, which was ignored once.
func TestToolUseTemplateIsUsed(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 64}, engine.Options{})
	var err error
	m.Chat, err = words.ReadChat(fstest.MapFS{
		"chat_template.jinja":                      {Data: []byte("plain")},
		"additional_chat_templates/tool_use.jinja": {Data: []byte("tools")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, m)
	tools := []obj{{"type": "function", "function": obj{"name": "f"}}}
	for want, body := range map[string]obj{"plain": {"messages": hello}, "tools": {"messages": hello, "tools": tools}} {
		_, got := s.object("POST", "/tokenize", body)
		if _, text := s.object("POST", "/detokenize", obj{"tokens": got["tokens"]}); text["prompt"] != want {
			t.Errorf("prompt %v, want %s", text["prompt"], want)
		}
	}
}

// TestToolLoopWithoutContent: the second leg of a tool loop sends a client's copy of the
// model's own message, with calls and without content, which was a 400 with templates that
// read the content of every assistant message.
func TestToolLoopWithoutContent(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 64}, engine.Options{})
	var err error
	m.Chat, err = words.ReadChat(fstest.MapFS{"chat_template.jinja": {Data: []byte(
		`{% for m in messages %}{% if m.role in ["system", "user", "assistant", "tool"] %}[{{ m.role }}]{{ m.content.strip() }}{% endif %}{% endfor %}`)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, m)
	calls := []obj{{"id": "call_1", "type": "function", "function": obj{"name": "f", "arguments": "{}"}}}
	for name, answer := range map[string]obj{
		"null":   {"role": "assistant", "content": nil, "tool_calls": calls},
		"absent": {"role": "assistant", "tool_calls": calls},
		"empty":  {"role": "assistant", "content": "", "tool_calls": calls},
	} {
		messages := []obj{
			{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}, answer,
			{"role": "tool", "tool_call_id": "call_1", "content": "4"},
		}
		_, got := s.object("POST", "/tokenize", obj{"messages": messages})
		if _, text := s.object("POST", "/detokenize", obj{"tokens": got["tokens"]}); text["prompt"] != "[system]be brief[user]hi[assistant][tool]4" {
			t.Errorf("%s: prompt %v", name, text["prompt"])
		}
	}
}
