package api_test

import (
	"net/http"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// TestPredictions: an answer is the same with a prediction, and usage counts what of the prediction was right
// and wrong; predictions that are none are a 400 that names the field.
func TestPredictions(t *testing.T) {
	const words = "func f() { print(greeting) }"
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: words}, engine.Options{DraftTokens: 4}))
	body := obj{"messages": []obj{{"role": "user", "content": "Rename it"}}, "max_tokens": 30}
	_, plain := s.object(http.MethodPost, "/v1/chat/completions", body)
	content := at(plain, "choices", 0, "message", "content")
	for name, prediction := range map[string]any{
		"a string": obj{"type": "content", "content": "func f() { print(hello) }"},
		"parts":    obj{"type": "content", "content": []obj{{"type": "text", "text": "func f() {"}, {"type": "text", "text": " print(hello) }"}}},
	} {
		body["prediction"] = prediction
		status, got := s.object(http.MethodPost, "/v1/chat/completions", body)
		accepted := at(got, "usage", "completion_tokens_details", "accepted_prediction_tokens")
		rejected := at(got, "usage", "completion_tokens_details", "rejected_prediction_tokens")
		if status != http.StatusOK || at(got, "choices", 0, "message", "content") != content || accepted == nil || rejected == nil {
			t.Errorf("%s: status %d, %v, want the content %q and tokens of both kinds", name, status, got, content)
		}
	}
	for param, prediction := range map[string]any{
		"prediction":                 "text",
		"prediction.type":            obj{"type": "file", "content": "x"},
		"prediction.content":         obj{"type": "content", "content": 7},
		"prediction.content[0].type": obj{"type": "content", "content": []obj{{"type": "image_url"}}},
	} {
		body["prediction"] = prediction
		status, got := s.object(http.MethodPost, "/v1/chat/completions", body)
		if status != http.StatusBadRequest || at(got, "error", "param") != param {
			t.Errorf("%v: status %d, %v, want a 400 for %s", prediction, status, got, param)
		}
	}
}
