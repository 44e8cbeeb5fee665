package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// TestReasoningBudgets: reasoning ends after so many tokens, but not within a character, whether the answer begins with a
// marker, the prompt ends in reasoning or the content is constrained, whole and streamed. Shorter reasoning stays as it is.
func TestReasoningBudgets(t *testing.T) {
	const words = "one two three four five six seven eight"
	think := []string{"<think>", "</think>"}
	opens := generatetest.Speaker{Template: hermesTemplate, Special: think, Says: "<think>" + words + "</think>Yes. " + words}
	begun := generatetest.Speaker{Template: deepseekTemplate, Special: append(think, deepseekSpecial...), Says: words + "</think>Yes. " + words}
	spelled := generatetest.Speaker{Template: hermesTemplate, Says: opens.Says} // the marker takes several tokens
	faces := generatetest.Speaker{Template: hermesTemplate, Special: think, Says: "<think>😀😀😀" + words}
	for name, c := range map[string]struct {
		speaker            generatetest.Speaker
		body               obj
		reasoning, content string // the content begins so: a scripted model goes on with its script
	}{
		"opened":      {opens, obj{"thinking_token_budget": 2}, "one two", "ree four"},
		"other name":  {opens, obj{"reasoning_budget": 2}, "one two", "ree four"},
		"begun":       {begun, obj{"thinking_token_budget": 2}, "one two", "ree four"},
		"spelled":     {spelled, obj{"thinking_token_budget": 2}, "one two", ""},
		"none":        {begun, obj{"thinking_token_budget": 0}, "", "two three"},
		"unlimited":   {opens, obj{"thinking_token_budget": -1}, words, "Yes."},
		"enough":      {opens, obj{"thinking_token_budget": 500}, words, "Yes."},
		"characters":  {faces, obj{"thinking_token_budget": 1}, "😀", ""},
		"constrained": {opens, obj{"thinking_token_budget": 3, "structured_outputs": obj{"choice": []string{"blue"}}}, "one two th", "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, generatetest.Speaking(t, c.speaker, engine.Options{}))
			c.body["messages"], c.body["max_tokens"], c.body["n"] = []obj{{"role": "user", "content": "Hi"}}, 200, 2
			status, whole := s.object(http.MethodPost, "/v1/chat/completions", c.body)
			for i := range 2 {
				message := at(whole, "choices", i, "message")
				reasoning, _ := at(message, "reasoning").(string)
				content, _ := at(message, "content").(string)
				if status != http.StatusOK || reasoning != c.reasoning || !strings.HasPrefix(content, c.content) {
					t.Errorf("status %d, choice %d: reasoning %q, content %q", status, i, reasoning, content)
				}
			}
			c.body["n"] = 1
			var reasoning, content string
			for _, data := range s.stream("/v1/chat/completions", c.body) {
				var chunk any
				if json.Unmarshal([]byte(data), &chunk) != nil {
					continue // the end
				}
				more, _ := at(chunk, "choices", 0, "delta", "reasoning").(string)
				text, _ := at(chunk, "choices", 0, "delta", "content").(string)
				reasoning, content = reasoning+more, content+text
			}
			if reasoning != c.reasoning || !strings.HasPrefix(content, c.content) {
				t.Errorf("streamed: reasoning %q, content %q", reasoning, content)
			}
		})
	}
}

// TestMessagesBudgetWasNotEnforced: budget_tokens of /v1/messages ends the thinking.
func TestMessagesBudgetWasNotEnforced(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Special: []string{"<think>", "</think>"},
		Says: "<think>one two three four</think>Yes."}, engine.Options{}))
	status, m := s.object(http.MethodPost, "/v1/messages", hi(obj{"thinking": obj{"type": "enabled", "budget_tokens": 2}}))
	if status != http.StatusOK || at(m, "content", 0, "thinking") != "one two" || at(m, "content", 1, "type") != "text" {
		t.Errorf("status %d, %v", status, m)
	}
}

// TestABegunMarkerWasForcedWhole: a budget that ends while the model spells the marker lets it end the marker; the
// beginning stayed in the reasoning.
func TestABegunMarkerWasForcedWhole(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: "<think>one</think>Yes."}, engine.Options{}))
	for budget := range 12 {
		status, whole := s.object(http.MethodPost, "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "max_tokens": 60, "thinking_token_budget": budget})
		if reasoning, _ := at(whole, "choices", 0, "message", "reasoning").(string); status != http.StatusOK || !strings.HasPrefix("one", reasoning) {
			t.Errorf("budget %d: status %d, reasoning %q", budget, status, reasoning)
		}
	}
}

// TestTwoBudgetsOfReasoning: different values under two names are a 400 that names both; equal ones are one budget.
func TestTwoBudgetsOfReasoning(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Special: []string{"<think>", "</think>"}, Says: "<think>one two</think>Yes."}, engine.Options{}))
	for second, want := range map[int]int{2: http.StatusOK, 3: http.StatusBadRequest, -1: http.StatusBadRequest} {
		status, whole := s.object(http.MethodPost, "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "max_tokens": 60,
			"thinking_token_budget": 2, "reasoning_budget": second})
		message, _ := at(whole, "error", "message").(string)
		if status != want || want != http.StatusOK && (!strings.Contains(message, "thinking_token_budget") || at(whole, "error", "param") != "reasoning_budget") {
			t.Errorf("2 and %d: status %d, %v", second, status, whole)
		}
	}
}

// TestAForbiddenMarker: a request that forbids the marker which its budget forces ends in an error that says so.
func TestAForbiddenMarker(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Special: []string{"<think>", "</think>"}, Says: "<think>one two</think>Yes."}, engine.Options{}))
	status, whole := s.object(http.MethodPost, "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "max_tokens": 60,
		"thinking_token_budget": 2, "bad_words": []string{"</think>"}})
	if message, _ := at(whole, "error", "message").(string); status != http.StatusBadRequest || !strings.Contains(message, "exclude each other") {
		t.Errorf("status %d, %v", status, whole)
	}
}
