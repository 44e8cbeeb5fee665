package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestPathsOfOtherServersSayWhatToUse: they were a plain "Invalid URL", or one that sent Anthropic's clients to look at
// their base URL.
func TestPathsOfOtherServersSayWhatToUse(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for request, want := range map[string]string{
		"POST /v1/rerank": "do not rank", "POST /v2/rerank": "do not rank", "POST /v1/score": "do not rank", "POST /pooling": "/v1/embeddings",
		"GET /props": "GET /v1/models", "GET /slots": "GET /activity", "POST /infill": "/v1/completions", "POST /completion": "/v1/completions",
		"POST /v1/audio/transcriptions": "text only", "GET /v1/fine_tuning/jobs/ft-1": "train run", "POST /v1/conversations/c/items": "previous_response_id",
		"GET /v1/chat/completions/abc": "keeps no conversations", "POST /v1/chat/completions/render": "/apply-template", "POST /api/v1/chat": "LM Studio",
		"POST /v1/messages/batches": "POST /v1/batches", "POST /v1/realtime/client_secrets": "/v1/responses", "GET /nowhere": "Invalid URL (GET /nowhere)",
		"GET /models": "Did you mean /v1/models?", "POST /v1/chat/completion": "Did you mean /v1/chat/completions?", "GET /v1/chat/completion": "Did you mean POST /v1/chat/completions?",
		"GET /chat/completions": "Did you mean POST /v1/chat/completions?", "POST /v1/embedding": "Did you mean /v1/embeddings?", "GET /metric": "Did you mean /metrics?", "POST /v1/v1/messages": "Did you mean /v1/messages?", "POST /chat/completions": "Did you mean /v1/chat/completions?",
		"POST /completions": "/v1/completions",
	} {
		method, path, _ := strings.Cut(request, " ")
		status, body := s.text(method, path, nil)
		if status != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", request, status, body, want)
		}
	}
}
