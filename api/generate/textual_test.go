package generate_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/text"
)

// TestReplyReadsCallsAndReasoning goes once around a tool loop.
func TestReplyReadsCallsAndReasoning(t *testing.T) {
	m := generatetest.Speaking(t, generatetest.Speaker{
		Template: `{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{% if tools %}<tool_call>{% endif %}`,
		Says:     `<think>Hm.</think>I look.<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>`}, engine.Options{})
	var err error
	if m.Chat, err = m.Chat.WithParsers("hermes", ""); err != nil {
		t.Fatal(err)
	}
	c := text.Conversation{Messages: []text.Message{text.User("Weather?")},
		Tools: []text.Tool{{Name: "weather", Parameters: json.RawMessage(`{"type": "object"}`)}}}
	answer, err := m.Reply(t.Context(), c, generate.TextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Role != "assistant" || answer.Content != "I look." || answer.Reasoning != "Hm." || len(answer.ToolCalls) != 1 {
		t.Fatalf("got %+v", answer)
	}
	call := answer.ToolCalls[0]
	if call.ID == "" || call.Name != "weather" || call.Arguments != `{"city": "Oslo"}` {
		t.Errorf("got %+v", call)
	}
	c.Messages = append(c.Messages, answer, text.ToolResult(call, "rain"))
	if _, err := m.Reply(t.Context(), c, generate.TextOptions{MaxTokens: 1}); err != nil {
		t.Errorf("the second leg: %v", err)
	}
}

// TestStreamEndsWithTheLoop: a loop that breaks frees the request's place.
func TestStreamEndsWithTheLoop(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 1 << 16, Delay: time.Millisecond}, engine.Options{})
	for _, err := range m.Stream(t.Context(), "Hi", generate.TextOptions{Params: &generate.Params{}}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	for m.Sequences() != (generate.Sequences{}) {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Complete(ctx, "Hi", generate.TextOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}

// TestCompleteStopsAndCounts: stop strings, MaxTokens and a prompt that is too long, from several
// goroutines.
func TestCompleteStopsAndCounts(t *testing.T) {
	m := generatetest.Speaking(t, generatetest.Speaker{Template: "x", Says: "one two three"}, engine.Options{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got, err := m.Complete(t.Context(), "count:", generate.TextOptions{Stop: []string{" three"}}); err != nil || got != "one two" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	all.Wait()
	long := make([]byte, 1<<16)
	for i := range long {
		long[i] = byte('a' + i%26)
	}
	var e *wire.Error
	if _, err := m.Complete(t.Context(), string(long), generate.TextOptions{}); !errors.As(err, &e) || e.Kind != wire.TooLong {
		t.Errorf("a prompt beyond the context: %v", err)
	}
}
