package api_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// TestAForcedCallThatReasoningLeftNoRoomFor: wherever max_tokens cuts an answer that must have a call, in its
// reasoning, in the markup of the call or in its arguments, the answer says that it was cut, in all dialects, and
// has no text; the model wrote none. Markup of half a call was text.
func TestAForcedCallThatReasoningLeftNoRoomFor(t *testing.T) {
	const thought, call = "<think>Hm, well.</think>\n", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"
	m := generatetest.Speaking(t, generatetest.Speaker{Template: reasoningHermes, Special: []string{"<think>", "</think>"}, Says: thought + call}, engine.Options{})
	ids, err := m.Encode(t.Context(), thought+call, false)
	if err != nil {
		t.Fatal(err)
	}
	reasoning, err := m.Encode(t.Context(), thought, false)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, m)
	for _, named := range []bool{false, true} {
		for _, d := range forcedDialects(named) {
			for n := 1; n <= len(ids)+1; n++ {
				d.body["temperature"], d.body[d.limit] = 0, n
				whole, streamed := d.whole(t, s, maps.Clone(d.body)), d.streamed(t, s, maps.Clone(d.body))
				if !reflect.DeepEqual(whole, streamed) {
					t.Errorf("%s, %d tokens: at once %+v, streamed %+v", d.name, n, whole, streamed)
				}
				if n > len(ids) {
					if want := (spoken{"", "Hm, well.", []spokenCall{oslo}, d.ended}); !reflect.DeepEqual(whole, want) {
						t.Errorf("%s: got %+v, want %+v", d.name, whole, want)
					}
					continue
				}
				if whole.Content != "" || whole.Finish != d.cut || !strings.HasPrefix("Hm, well.", whole.Reasoning) {
					t.Errorf("%s, %d of %d tokens: %+v", d.name, n, len(ids), whole)
				}
				if len(whole.Calls) > 1 || n <= len(reasoning) && len(whole.Calls) > 0 {
					t.Errorf("%s, %d of %d tokens, %d of them reasoning: calls %+v", d.name, n, len(ids), len(reasoning), whole.Calls)
				}
				for _, call := range whole.Calls {
					if call.Name != "weather" || !strings.HasPrefix(oslo.Arguments, call.Arguments) && !(d.name == "messages" && call.Arguments == "{}") {
						t.Errorf("%s, %d of %d tokens: call %+v", d.name, n, len(ids), call)
					}
				}
			}
		}
	}
}

// A forcedDialect asks for a call in one of the APIs.
type forcedDialect struct {
	name, limit     string
	ended, cut      string // why an answer has ended
	body            obj
	whole, streamed func(*testing.T, *server, obj) spoken
}

func forcedDialects(named bool) []forcedDialect {
	chatChoice, itemChoice, blockChoice, ended := any("required"), any("required"), obj{"type": "any"}, "tool_calls"
	if named {
		chatChoice, itemChoice = obj{"type": "function", "function": obj{"name": "weather"}}, obj{"type": "function", "name": "weather"}
		blockChoice, ended = obj{"type": "tool", "name": "weather"}, "stop"
	}
	return []forcedDialect{
		{"chat", "max_tokens", ended, "length", obj{"messages": hello, "tools": weather, "tool_choice": chatChoice},
			func(t *testing.T, s *server, b obj) spoken { return whole(t, s.answers(chat, b)[0]) },
			func(t *testing.T, s *server, b obj) spoken { return pieced(t, s.stream(chat, b)) }},
		{"responses", "max_output_tokens", "completed", "max_output_tokens", obj{"input": "Hi", "tools": weatherTool, "tool_choice": itemChoice},
			func(t *testing.T, s *server, b obj) spoken { return ofResponse(t, s.respond(b)) },
			func(t *testing.T, s *server, b obj) spoken {
				events := s.events(b)
				return ofResponse(t, at(events[len(events)-1].data, "response").(map[string]any))
			}},
		{"messages", "max_tokens", "tool_use", "max_tokens", hi(obj{"tools": schemaTool, "tool_choice": blockChoice}),
			func(t *testing.T, s *server, b obj) spoken { return ofMessage(t, s.message(b)) },
			func(t *testing.T, s *server, b obj) spoken { return ofMessage(t, assembled(t, s.messageEvents(b))) }},
	}
}

// ofResponse reads a response.
func ofResponse(t *testing.T, r map[string]any) (s spoken) {
	t.Helper()
	for _, item := range r["output"].([]any) {
		switch at(item, "type") {
		case "reasoning":
			s.Reasoning = at(item, "content", 0, "text").(string)
		case "message":
			s.Content = at(item, "content", 0, "text").(string)
		case "function_call":
			s.Calls = append(s.Calls, spokenCall{at(item, "name").(string), at(item, "arguments").(string)})
		}
	}
	s.Finish = r["status"].(string)
	if reason, ok := at(r, "incomplete_details", "reason").(string); ok {
		s.Finish = reason
	}
	return s
}

// ofMessage reads a message.
func ofMessage(t *testing.T, r map[string]any) (s spoken) {
	t.Helper()
	for _, block := range r["content"].([]any) {
		switch at(block, "type") {
		case "thinking":
			s.Reasoning = at(block, "thinking").(string)
		case "text":
			s.Content = at(block, "text").(string)
		case "tool_use":
			input := strings.ReplaceAll(mustJSON(t, at(block, "input")), ":", ": ")
			s.Calls = append(s.Calls, spokenCall{at(block, "name").(string), input})
		}
	}
	s.Finish = r["stop_reason"].(string)
	return s
}
