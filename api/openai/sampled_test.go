package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// dropped is a client that reads its answer and keeps nothing of it.
type dropped struct {
	header http.Header
	code   int
	bytes  int64
	look   func() // now and then
}

func (d *dropped) Header() http.Header  { return d.header }
func (d *dropped) WriteHeader(code int) { d.code = code }
func (d *dropped) Write(b []byte) (int, error) {
	const often = 256 << 10
	if d.look != nil && (d.bytes == 0 || d.bytes/often != (d.bytes+int64(len(b)))/often) {
		d.look()
	}
	d.bytes += int64(len(b))
	return len(b), nil
}

// live is the memory of the objects that a collection has just found in use.
func live() int64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// TestCollectedAnswersTakeWhatIsReserved samples the live heap while answers of all kinds are collected
// and sent: it is at no time larger than the requests' reservations. The factors were estimates.
// It looks while the engine waits for a pass and while the server waits for the client, so that no
// garbage is in between.
func TestCollectedAnswersTakeWhatIsReserved(t *testing.T) {
	for name, c := range map[string]struct {
		chat   bool
		fields string
	}{
		"text":                      {false, `"max_tokens": 12000`},
		"ids":                       {false, `"max_tokens": 8000, "return_token_ids": true`},
		"log-probabilities":         {false, `"max_tokens": 8000, "logprobs": 0`},
		"20 log-probabilities":      {false, `"max_tokens": 4000, "logprobs": 20`},
		"several choices":           {false, `"max_tokens": 1500, "logprobs": 5, "n": 6, "return_token_ids": true`},
		"chat text":                 {true, `"max_tokens": 12000`},
		"chat ids":                  {true, `"max_tokens": 8000, "return_token_ids": true`},
		"chat log-probabilities":    {true, `"max_tokens": 8000, "logprobs": true`},
		"chat 20 log-probabilities": {true, `"max_tokens": 4000, "logprobs": true, "top_logprobs": 20`},
	} {
		t.Run(name, func(t *testing.T) { checkReserved(t, c.chat, c.fields) })
	}
}

func checkReserved(t *testing.T, chat bool, fields string) {
	var used, before, most, over atomic.Int64
	look := func() {
		low := used.Load()
		n := live() - before.Load()
		most.Store(max(most.Load(), n))
		over.Store(max(over.Load(), n-max(low, used.Load())))
	}
	passes := 0
	fake := &enginetest.Model{MaxLen: 1 << 16, PageTokens: 1 << 16, Pages: 1 << 4, BeforePass: func(context.Context, []engine.Row) error {
		if passes++; passes%1000 == 0 {
			look()
		}
		return nil
	}}
	m := generatetest.Spoken(t, fake, engine.Options{})
	s := openai.New(generate.NewModels(m))
	serve, body := s.Completions, `{"prompt": "a", "ignore_eos": true, "seed": 1, %s}`
	if chat {
		serve, body = s.ChatCompletions, `{"messages": [{"role": "user", "content": "a"}], "ignore_eos": true, "seed": 1, %s}`
	}
	h := wire.NewMemory(64<<20, func(n int64) { used.Add(n) }).Limit(func(*http.Request) wire.ErrorWriter { return openai.WriteError })(http.HandlerFunc(serve))
	send := func(fields string, look func()) *dropped {
		d := &dropped{header: http.Header{}, code: http.StatusOK, look: look}
		h.ServeHTTP(d, httptest.NewRequest("POST", "/", io.NopCloser(strings.NewReader(fmt.Sprintf(body, fields)))))
		return d
	}
	send(`"max_tokens": 50, "n": 6`, nil) // memory that the server keeps between requests
	before.Store(live())
	answer := send(fields, look)
	t.Logf("%d bytes of answer, at most %d live, %d over what was reserved", answer.bytes, most.Load(), over.Load())
	// A stream buffers 64 KiB of events, and its reader has taken as many: more than a few where the machine is busy.
	const slack = 2 * 64 << 10
	if answer.code != http.StatusOK || most.Load() < 128<<10 || over.Load() > slack {
		t.Errorf("status %d, at most %d bytes live, %d beside what was reserved", answer.code, most.Load(), over.Load())
	}
}
