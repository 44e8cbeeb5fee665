package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestClientsThatDoNotReadHoldNoPlaces: 16 clients that asked for many log-probabilities and read
// nothing kept a default server from answering other clients until their last token.
func TestClientsThatDoNotReadHoldNoPlaces(t *testing.T) {
	const batch, tokens = 2, 50000
	passes := 0
	m := &enginetest.Model{MaxLen: 1 << 20, Pages: 1 << 20}
	m.BeforePass = func(context.Context, []engine.Row) error {
		if passes++; passes > tokens-1 {
			return errors.New("the stalled streams ran to their end")
		}
		return nil
	}
	address := hasty(t, generatetest.Fake(t, m, engine.Options{MaxBatch: batch}), api.Timeouts{Stall: time.Minute})
	ask := func(path, body string) io.Reader {
		c := dial(t, address)
		if _, err := io.WriteString(c, head(path, len(body))+body); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range batch + 1 {
		ask(completions, fmt.Sprintf(`{"prompt": [%d], "stream": true, "max_tokens": %d, "ignore_eos": true, "logprobs": 20}`, i, tokens))
	}
	resp, err := http.ReadResponse(bufio.NewReader(ask(completions, `{"prompt": [9], "max_tokens": 8, "ignore_eos": true}`)), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got status %d, %s, error %v", resp.StatusCode, b, err)
	}
}
