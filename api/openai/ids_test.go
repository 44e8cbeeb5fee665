package openai_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// TestPromptsOfIDsAreCounted: the ids of a prompt were held until the answer and not counted.
func TestPromptsOfIDsAreCounted(t *testing.T) {
	const ids, requests = 30_000, 6
	for _, path := range []string{"completions", "embeddings"} {
		synctest.Test(t, func(t *testing.T) {
			m := generatetest.Fake(t, &enginetest.Model{MaxLen: 1 << 15, PageTokens: 1 << 12, Pages: 1 << 8, Delay: time.Hour}, engine.Options{})
			var used atomic.Int64
			s := openai.New(generate.NewModels(m))
			limit := wire.NewMemory(4<<20, func(n int64) { used.Add(n) }).Limit(func(*http.Request) wire.ErrorWriter { return openai.WriteError })
			serve, body := s.Completions, `{"max_tokens": 1, "prompt": [%s1]}`
			if path == "embeddings" {
				serve, body = s.Embeddings, `{"input": [%s1]}`
			}
			h := limit(http.HandlerFunc(serve))
			body = fmt.Sprintf(body, strings.Repeat("1,", ids-1))
			send := func() (int, string) {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
				return w.Code, w.Body.String()
			}
			codes := make(chan int, requests)
			for range requests {
				go func() {
					code, _ := send()
					codes <- code
				}()
				synctest.Wait() // it is decoded, and the engine has its ids
			}
			if n := used.Load(); n < 8*ids*requests {
				t.Errorf("%s: %d bytes are reserved while the engine holds %d ids", path, n, ids*requests)
			}
			if code, answer := send(); code != http.StatusServiceUnavailable {
				t.Errorf("%s: with the memory full of ids: got status %d, want 503: %.200s", path, code, answer)
			}
			for range requests {
				if code := <-codes; code != http.StatusOK {
					t.Errorf("%s: a request that was admitted ends with %d", path, code)
				}
			}
			if code, answer := send(); code != http.StatusOK {
				t.Errorf("%s: the memory was not released: %d, %.200s", path, code, answer)
			}
		})
	}
}
