package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// discard is a client that reads nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) FlushError() error           { return nil }

// BenchmarkStream measures the cost of a streamed token without its forward pass: the engine, a
// fake model's logits, decoding, a chunk.
func BenchmarkStream(b *testing.B) {
	const tokens = 500
	words := generatetest.WithText(b, "")
	ids, err := words.Encode(b.Context(), "the boat went over the river and far away ", false)
	if err != nil {
		b.Fatal(err)
	}
	script := make([]int32, 0, tokens)
	for len(script) < tokens {
		script = append(script, ids...)
	}
	m := generatetest.Saying(b, &enginetest.Model{}, script, engine.Options{})
	s := New(generate.NewModels(m))
	body := `{"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "stream": true, "max_tokens": 500, "stop": ["zzz"]}`
	for b.Loop() {
		s.ChatCompletions(discard{http.Header{}}, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", strings.NewReader(body)))
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/tokens, "µs/token")
}
