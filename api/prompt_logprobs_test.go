package api_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
)

// scoredPrompt checks vLLM's list of a prompt's log-probabilities: null, then objects of the token itself and the top
// likeliest ones. It returns the token's own, 0 for the first.
func scoredPrompt(t *testing.T, list []any, ids []any, top int) []float64 {
	t.Helper()
	if len(list) != len(ids) || list[0] != nil {
		t.Fatalf("got %d entries, the first %v, want %d and null", len(list), list[0], len(ids))
	}
	own := []float64{0}
	for i, entry := range list[1:] {
		of, id := entry.(obj), fmt.Sprint(ids[i+1])
		ranks := map[int64]bool{}
		for name, e := range of {
			rank := mustInt(t, at(e, "rank"))
			if p := number(t, at(e, "logprob")); p > 0 || name != id && rank > int64(top) || ranks[rank] {
				t.Errorf("place %d, token %s: rank %d with log-probability %v", i+1, name, rank, p)
			}
			ranks[rank] = true
			if _, text := at(e, "decoded_token").(string); !text || len(e.(obj)) != 3 {
				t.Errorf("place %d, token %s: %v", i+1, name, e)
			}
		}
		if of[id] == nil || len(of) < max(top, 1) || len(of) > top+1 {
			t.Fatalf("place %d: got %v, want token %s and the %d likeliest", i+1, of, id, top)
		}
		own = append(own, number(t, at(of, id, "logprob")))
	}
	return own
}

func TestPromptLogProbs(t *testing.T) {
	s := serveDemo(t)
	for _, top := range []int{0, 1, 5, 20} {
		body := obj{"prompt": []string{"The boat on the river", "A"}, "max_tokens": 2, "n": 2, "return_token_ids": true, "prompt_logprobs": top,
			"echo": true, "logprobs": 2}
		for i, c := range s.answers(completions, body) {
			ids := at(c, "prompt_token_ids").([]any)
			own := scoredPrompt(t, at(c, "prompt_logprobs").([]any), ids, top)
			echoed := at(c, "logprobs", "token_logprobs").([]any)
			for k := 1; k < len(ids); k++ {
				if got := number(t, echoed[k]); !(math.Abs(got-own[k]) <= 1e-6) {
					t.Errorf("choice %d, place %d: %v, but echo has %v", i, k, own[k], got)
				}
				if n := len(at(c, "logprobs", "top_logprobs", k).(obj)); n > 3 {
					t.Errorf("choice %d, place %d: %d likeliest ones in logprobs, want 2", i, k, n)
				}
			}
		}
		_, got := s.object("POST", chat, obj{"messages": hello, "max_tokens": 3, "n": 2, "return_token_ids": true, "prompt_logprobs": top})
		scoredPrompt(t, at(got, "prompt_logprobs").([]any), at(got, "choices", 0, "prompt_token_ids").([]any), top)
	}
	c := s.answers(completions, obj{"prompt": "The boat", "max_tokens": 2, "prompt_logprobs": 1, "logprobs": 0})[0]
	if n := len(at(c, "logprobs", "tokens").([]any)); n != 2 {
		t.Errorf("logprobs without echo have %d tokens, want those of the answer", n)
	}
	if c := s.answers(completions, obj{"prompt": "The boat", "max_tokens": 2})[0]; at(c, "prompt_logprobs") != nil {
		t.Errorf("an answer without prompt_logprobs has them: %v", c)
	}
}

func TestPromptLogProbsOfAStream(t *testing.T) {
	s := serveDemo(t)
	for path, body := range map[string]obj{completions: {"prompt": "The boat"}, chat: {"messages": hello}} {
		body["stream"], body["prompt_logprobs"] = true, 1
		if status, got := s.object("POST", path, body); status != http.StatusBadRequest || at(got, "error", "param") != "prompt_logprobs" {
			t.Errorf("%s: %d, %v", path, status, got)
		}
	}
}
