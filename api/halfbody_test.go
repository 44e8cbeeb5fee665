package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestHalfABodyIsA400: a client that sent a part of its body and closed its side for writing got "499 status code 499".
// After a whole body the error says what to do.
func TestHalfABodyIsA400(t *testing.T) {
	pass := make(chan struct{})
	m := &enginetest.Model{BeforePass: func(ctx context.Context, _ []engine.Row) error { close(pass); <-ctx.Done(); return ctx.Err() }}
	address := hasty(t, generatetest.Fake(t, m, engine.Options{}), api.Timeouts{})
	ask := func(sent string, wait chan struct{}) (*http.Response, string) {
		c := dial(t, address)
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		if wait != nil {
			<-wait
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp, readAll(t, resp)
	}
	const chunked = "POST " + completions + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, sent := range []string{head(completions, 100) + `{"prompt": `, chunked + "5\r\n{\"pro", chunked + "2\r\n{}\r\n"} {
		if resp, text := ask(sent, nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "ended early") {
			t.Errorf("%q: got %s, %s", sent, resp.Status, text)
		}
	}
	body := `{"prompt": [1], "max_tokens": 3}`
	if resp, text := ask(head(completions, len(body))+body, pass); resp.StatusCode != wire.StatusClientClosed || !strings.Contains(text, "in both directions") {
		t.Errorf("a whole body: got %s, %s", resp.Status, text)
	}
}
