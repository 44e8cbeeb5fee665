package api_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestLargeHeadersAreRefused: each connection could send a header of a MiB, which no limit counts.
func TestLargeHeadersAreRefused(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	c := dial(t, hasty(t, m, api.Timeouts{}))
	go func() {
		_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 100_000)+"\r\n\r\n")
	}()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got status %d, want 431", answer.StatusCode)
	}
}
