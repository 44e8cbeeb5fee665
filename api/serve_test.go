package api_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestServeDrains: when its context ends, Serve lets the running request end and refuses new ones;
// with less time than the request needs it says that it was cut off.
func TestServeDrains(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout time.Duration
		tokens  string
		ok      bool
	}{{"in time", time.Minute, "20", true}, {"cut off", time.Millisecond, "1000000", false}} {
		m := generatetest.Fake(t, &enginetest.Model{MaxLen: 1 << 21, Pages: 1 << 20, Delay: time.Millisecond}, engine.Options{})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- api.Serve(ctx, listener, m, api.Options{ShutdownTimeout: c.timeout}) }()
		answered := make(chan int, 1)
		go func() {
			r, err := http.Post("http://"+listener.Addr().String()+completions, "application/json",
				strings.NewReader(`{"prompt": [1], "ignore_eos": true, "max_tokens": `+c.tokens+`}`))
			if err != nil {
				answered <- 0
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // cut off or not
			_ = r.Body.Close()
			answered <- r.StatusCode
		}()
		eventually(t, "the request runs", func() bool { return m.Sequences().Running > 0 })
		stop()
		if err := <-served; (err == nil) != c.ok {
			t.Errorf("%s: Serve returns %v", c.name, err)
		}
		if status := <-answered; (status == http.StatusOK) != c.ok {
			t.Errorf("%s: the request got status %d", c.name, status)
		}
		if !m.Draining() {
			t.Errorf("%s: the model takes requests", c.name)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
