package api_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/loader/demo"
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

// TestServeDrainsAllItsModels: requests of Options.Models went on to be accepted while the first model drained, and
// these models were neither read ahead, so that /ready stayed 503, nor drained. A catalog without a first model panicked.
func TestServeDrainsAllItsModels(t *testing.T) {
	for name, catalog := range map[string]bool{"models": false, "catalog": true} {
		t.Run(name, func(t *testing.T) {
			first, second := opened(t, "a"), opened(t, "b")
			o, m := api.Options{Models: []*generate.Model{second}}, first
			if catalog {
				o, m = api.Options{Catalog: generate.NewModels(first, second), Lazy: true}, nil
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- api.Serve(ctx, listener, m, o) }()
			eventually(t, "the server is ready", func() bool {
				r, err := http.Get("http://" + listener.Addr().String() + "/ready")
				if err == nil {
					_ = r.Body.Close()
				}
				return err == nil && r.StatusCode == http.StatusOK
			})
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
			if !first.Draining() || !second.Draining() {
				t.Errorf("draining: %t and %t, want both", first.Draining(), second.Draining())
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// opened is the demo model under a name.
func opened(t *testing.T, name string) *generate.Model {
	d, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{Serving: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	m, err := generate.New(d, generate.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestServeOfNothingPanicked: without a listener or a model, and entries of Access that allow nothing were taken.
func TestServeOfNothingPanicked(t *testing.T) {
	m := opened(t, "demo")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for want, call := range map[string]func() error{
		"api: serve: got a nil listener": func() error { return api.Serve(t.Context(), nil, m, api.Options{}) },
		"api: serve: got a nil model":    func() error { return api.Serve(t.Context(), l, nil, api.Options{}) },
		"got origin \"app.example\", want ": func() error {
			return api.Serve(t.Context(), l, m, api.Options{Access: api.Access{Origins: []string{"app.example"}}})
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestNewWithoutAModel: a nil model panicked, and so did one that generate.New has not made.
func TestNewWithoutAModel(t *testing.T) {
	for name, o := range map[string]api.Options{"none": {}, "nil": {Models: []*generate.Model{nil}}, "not made": {Models: []*generate.Model{{Name: "a"}}}} {
		s := &server{Server: httptest.NewServer(api.New(nil, o)), t: t}
		t.Cleanup(s.Close)
		for _, path := range []string{"/health", "/ready", "/plan", "/activity", "/v1/models", "/openapi.json"} {
			if status, body := s.object("GET", path, nil); status != http.StatusOK {
				t.Errorf("%s: %s: %d %v", name, path, status, body)
			}
		}
		if status, body := s.object("POST", completions, obj{"prompt": "a"}); status != http.StatusNotFound || at(body, "error", "message") != "The server has no model." {
			t.Errorf("%s: %d %v", name, status, body)
		}
	}
}
