package api_test

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
)

// serveBound serves the embedded model with its dispatched model, as serve does. Its weights are placed by
// o.
func serveBound(t testing.TB, o dispatch.Options) *server {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checkpoint.Close() })
	o.Threads, o.KVTokens = 1, 4096
	plan, options, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := dispatch.New(skeleton, checkpoint, plan.Map, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bound.Close)
	words, err := generate.ReadText(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	m, err := generate.New(bound, generate.Options{Name: demo.Name, Text: &words})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return serveWith(t, api.Options{Models: []*generate.Model{m}, Status: bound.Status, Lazy: true,
		Plan: func() any { return dispatch.NewReport(bound.Plan()).With(bound.Measured()) }})
}

// TestActivityShowsBlocksAndTiers: the difference of two readings, before and after a request, is its work.
func TestActivityShowsBlocksAndTiers(t *testing.T) {
	s := serveBound(t, dispatch.Options{})
	_, before := s.object("GET", "/activity", nil)
	blocks, _ := at(before, "models", 0, "blocks").([]any)
	if len(blocks) < 4 || at(before, "models", 0, "blocks", 1, "path") != "model.layers.0" || at(before, "models", 0, "blocks", 1, "bytes", "cpu") == nil {
		t.Errorf("blocks are %v", blocks)
	}
	if got := at(before, "models", 0, "model"); got != demo.Name {
		t.Errorf("the model is %v", got)
	}
	s.answers(completions, obj{"prompt": "The boat", "max_tokens": 4, "ignore_eos": true})
	var after map[string]any
	eventually(t, "the engine has counted the request", func() bool {
		_, after = s.object("GET", "/activity", nil)
		return number(t, at(after, "models", 0, "running")) == 0 && number(t, at(after, "models", 0, "generated_tokens")) == 4
	})
	for i := range blocks {
		if runs := number(t, at(after, "models", 0, "runs", i)); runs < 4 {
			t.Errorf("block %d has run %v times, want at least 4", i, runs)
		}
	}
	if used, all := number(t, at(after, "models", 0, "tiers", 0, "read_bytes")), number(t, at(after, "models", 0, "tiers", 0, "bytes")); used < 2*all {
		t.Errorf("4 passes have used %v bytes of weights of %v", used, all)
	}
	if pages := number(t, at(after, "models", 0, "kv", "pages")); pages == 0 {
		t.Error("the KV cache has no pages")
	}
}

// TestActivityStreams: the first event has the blocks, and an event follows each change. Asking for
// something else is an error that names it.
func TestActivityStreams(t *testing.T) {
	s := serveBound(t, dispatch.Options{})
	resp := s.do("GET", "/activity?stream=true", nil)
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("the type is %q", got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next := func() (event obj) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &event); err != nil {
					t.Fatal(err)
				}
				return event
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return nil
	}
	if first := next(); at(first, "models", 0, "blocks") == nil {
		t.Errorf("the first event has no blocks: %v", first)
	}
	s.answers(completions, obj{"prompt": "The boat", "max_tokens": 4, "ignore_eos": true})
	for {
		event := next()
		if at(event, "models", 0, "blocks") != nil {
			t.Errorf("a later event has blocks: %v", event)
		}
		if at(event, "models", 0, "generated_tokens") == 4.0 {
			break
		}
	}
	status, got := s.object("GET", "/activity?stream=yes", nil)
	checkError(t, status, got, 400, "stream", nil, "want true or false")
}

// TestActivityEndsWhenTheServerDrains: open streams would hold up the end of the server.
func TestActivityEndsWhenTheServerDrains(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	s := serve(t, m)
	resp := s.do("GET", "/activity?stream=true", nil)
	if err := m.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() { // until the server ends the stream
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

// TestActivityNeedsAKey: what others do is not for all.
func TestActivityNeedsAKey(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "secret")
	if status, _ := s.text("GET", "/activity", nil); status != 401 {
		t.Errorf("without a key /activity is %d, want 401", status)
	}
	s.key = "secret"
	if status, got := s.object("GET", "/activity", nil); status != 200 || at(got, "models", 0, "status") != "ready" {
		t.Errorf("with a key /activity is %d, %v", status, got)
	}
}

// number is a number of a body of JSON.
func number(t *testing.T, v any) float64 {
	t.Helper()
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil {
		t.Fatalf("got %v, want a number", v)
	}
	return f
}

// onDisk keeps two layers of the embedded model on disk.
func onDisk(t *testing.T) devicemap.Policy {
	t.Helper()
	p, err := devicemap.ParsePolicy("model.layers.1=disk,model.layers.3=disk")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
