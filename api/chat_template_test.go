package api_test

import (
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/api/generate/generatetest"
	templates "github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// TestToolUseTemplateIsUsed: a model may have a template of its own for conversations with
// tools, which was ignored once.
func TestToolUseTemplateIsUsed(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 64}, engine.Options{})
	var err error
	m.Chat, err = templates.Load(fstest.MapFS{
		"chat_template.jinja":                      {Data: []byte("plain")},
		"additional_chat_templates/tool_use.jinja": {Data: []byte("tools")},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, m, nil)
	tools := []obj{{"type": "function", "function": obj{"name": "f"}}}
	for want, body := range map[string]obj{"plain": {"messages": hello}, "tools": {"messages": hello, "tools": tools}} {
		_, got := s.object("POST", "/tokenize", body)
		if _, text := s.object("POST", "/detokenize", obj{"tokens": got["tokens"]}); text["prompt"] != want {
			t.Errorf("prompt %v, want %s", text["prompt"], want)
		}
	}
}
