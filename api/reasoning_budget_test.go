package api_test

import (
	"encoding/json"
	"fmt"
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

// TestABudgetRepeatedTheMarkerThatTheModelHadBegun: a budget that ends while the model spells the marker lets it end the marker; the
// beginning stayed in the reasoning.
func TestABudgetRepeatedTheMarkerThatTheModelHadBegun(t *testing.T) {
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

// TestABudgetWhoseMarkerIsForbiddenIsAnError: a request that forbids the marker which its budget forces ends in an error that says so.
func TestABudgetWhoseMarkerIsForbiddenIsAnError(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Special: []string{"<think>", "</think>"}, Says: "<think>one two</think>Yes."}, engine.Options{}))
	status, whole := s.object(http.MethodPost, "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "max_tokens": 60,
		"thinking_token_budget": 2, "bad_words": []string{"</think>"}})
	if message, _ := at(whole, "error", "message").(string); status != http.StatusBadRequest || !strings.Contains(message, "exclude each other") {
		t.Errorf("status %d, %v", status, whole)
	}
}

// TestCompletionsBudgetWasA400: the budget of a completion counts from the marker that the answer begins with, or if the
// prompt has begun the reasoning, from the answer's start.
func TestCompletionsBudgetWasA400(t *testing.T) {
	const words = "one two three four five six</think>Yes. "
	opens := generatetest.Speaker{Template: hermesTemplate, Special: []string{"<think>", "</think>"}, Says: "<think>" + words}
	inside := generatetest.Speaker{Template: hermesTemplate, Special: opens.Special, Says: words}
	for name, c := range map[string]struct {
		speaker      generatetest.Speaker
		prompt       any
		more         obj
		begins, want string // the beginning of the answer, with special tokens
	}{
		"opened":           {opens, "Hi", obj{"thinking_token_budget": 2}, "<think>one two</think>", ""},
		"begun":            {inside, "Hi<think>", obj{"reasoning_budget": 2}, "one two</think>", ""},
		"begun with words": {inside, "Hi<think>Well, ", obj{"thinking_token_budget": 2}, "one two</think>", ""},
		"ended":            {inside, "<think>No.</think>Hi", obj{"thinking_token_budget": 2}, "one two three", ""},
		"no reasoning":     {inside, "Hi", obj{"thinking_token_budget": 0}, "one two three", ""},
		"unlimited":        {opens, "Hi", obj{"thinking_token_budget": -1}, "<think>" + words, ""},
		"constrained":      {opens, "Hi<think>", obj{"thinking_token_budget": 0, "structured_outputs": obj{"choice": []string{"blue"}}}, "blue", "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, generatetest.Speaking(t, c.speaker, engine.Options{}))
			c.more["prompt"], c.more["max_tokens"], c.more["skip_special_tokens"], c.more["n"] = c.prompt, 60, false, 2
			status, whole := s.object(http.MethodPost, "/v1/completions", c.more)
			for i := range 2 {
				text, _ := at(whole, "choices", i, "text").(string)
				if status != http.StatusOK || !strings.HasPrefix(text, c.begins) || c.want != "" && text != c.want {
					t.Errorf("status %d, choice %d: %q", status, i, text)
				}
			}
		})
	}
	s := serve(t, generatetest.Speaking(t, inside, engine.Options{}))
	_, tokens := s.object(http.MethodPost, "/tokenize", obj{"prompt": "Hi<think>", "add_special_tokens": false})
	if status, whole := s.object(http.MethodPost, "/v1/completions", obj{"prompt": at(tokens, "tokens"), "max_tokens": 60, "thinking_budget": 2,
		"skip_special_tokens": false}); status != http.StatusOK || !strings.HasPrefix(at(whole, "choices", 0, "text").(string), "one two</think>") {
		t.Errorf("ids: status %d, %v", status, whole)
	}
}

// TestResponsesBudgetWasA400: /v1/responses takes a budget under the names of chat completions and as reasoning.max_tokens, which the
// response repeats; so do chat completions, where reasoning has an effort for the template, too.
func TestResponsesBudgetWasA400(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Special: []string{"<think>", "</think>"},
		Says: "<think>one two three four</think>Yes."}, engine.Options{}))
	for name, body := range map[string]obj{"object": {"reasoning": obj{"max_tokens": 2, "effort": "low"}}, "name": {"thinking_token_budget": 2},
		"both": {"thinking_token_budget": 2, "reasoning": obj{"max_tokens": 2}}} {
		body["input"], body["max_output_tokens"] = "Hi", 60
		status, r := s.object(http.MethodPost, "/v1/responses", body)
		if status != http.StatusOK || at(r, "output", 0, "type") != "reasoning" || at(r, "output", 0, "content", 0, "text") != "one two" || at(r, "output", 1, "type") != "message" {
			t.Errorf("%s: status %d, %v", name, status, r)
		}
		if asked := body["reasoning"]; asked != nil && fmt.Sprint(at(r, "reasoning", "max_tokens")) != "2" {
			t.Errorf("%s: reasoning %v", name, at(r, "reasoning"))
		}
		delete(body, "input")
		delete(body, "max_output_tokens")
		body["messages"], body["max_tokens"] = []obj{{"role": "user", "content": "Hi"}}, 60
		status, r = s.object(http.MethodPost, "/v1/chat/completions", body)
		if status != http.StatusOK || at(r, "choices", 0, "message", "reasoning") != "one two" {
			t.Errorf("%s: status %d, %v", name, status, r)
		}
		body["reasoning"] = obj{"max_tokens": 2, "exclude": true}
		status, r = s.object(http.MethodPost, "/v1/chat/completions", body)
		if content, _ := at(r, "choices", 0, "message", "content").(string); status != http.StatusOK || at(r, "choices", 0, "message", "reasoning") != nil || !strings.HasPrefix(content, "ree") {
			t.Errorf("%s, excluded: status %d, %v", name, status, r)
		}
	}
	for path, body := range map[string]obj{"/v1/responses": {"input": "Hi"}, "/v1/chat/completions": {"messages": []obj{{"role": "user", "content": "Hi"}}}} {
		body["thinking_budget"], body["reasoning"] = 3, obj{"max_tokens": 2}
		if status, r := s.object(http.MethodPost, path, body); status != http.StatusBadRequest || at(r, "error", "param") != "reasoning.max_tokens" {
			t.Errorf("%s, two budgets: status %d, %v", path, status, r)
		}
	}
	if status, r := s.object(http.MethodPost, "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": "Hi"}}, "max_tokens": 4,
		"reasoning_effort": "low", "reasoning": obj{"effort": "high"}}); status != http.StatusBadRequest || at(r, "error", "param") != "reasoning.effort" {
		t.Errorf("two efforts: status %d, %v", status, r)
	}
	for effort, body := range map[string]obj{"object": {"reasoning": obj{"effort": "high"}}, "name": {"reasoning_effort": "high"}} {
		body["messages"], body["max_tokens"] = []obj{{"role": "user", "content": "Hi"}}, 1
		_, r := s.object(http.MethodPost, "/v1/chat/completions", body)
		_, with := s.object(http.MethodPost, "/tokenize", obj{"messages": body["messages"], "chat_template_kwargs": obj{"reasoning_effort": "high"}})
		if n := at(r, "usage", "prompt_tokens"); n != at(with, "count") || n == nil {
			t.Errorf("%s: %v tokens of prompt, want %v", effort, n, at(with, "count"))
		}
	}
}
