package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// A shelf is a catalog of fakes, of which tests see what happens to them.
type shelf struct {
	*server
	models *generate.Models
	mu     sync.Mutex
	events []string
}

// note remembers an event.
func (s *shelf) note(event string) {
	s.mu.Lock()
	s.events = append(s.events, event)
	s.mu.Unlock()
}

func (s *shelf) happened() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, ", ")
}

// newShelf serves fakes; open, if not nil, is called before a fake is made and may fail.
func newShelf(t *testing.T, o generate.ModelsOptions, fakes map[string]*enginetest.Model, open func(ctx context.Context, s *shelf, name string) error, names ...string) *shelf {
	s := &shelf{models: generate.NewCatalog(o)}
	for _, name := range names {
		err := s.models.Add(generate.Source{Name: name, Created: generatetest.Created, Open: func(ctx context.Context) (*generate.Opened, error) {
			if open != nil {
				if err := open(ctx, s, name); err != nil {
					return nil, err
				}
			}
			fake := &enginetest.Model{}
			if f := fakes[name]; f != nil {
				fake.BeforePass = f.BeforePass
			}
			m := generatetest.Spoken(t, fake, engine.Options{})
			m.Name = name
			s.note("+" + name)
			return &generate.Opened{Model: m, Close: func() { s.note("-" + name) }}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.models.Close)
	s.server = serveCatalog(t, s.models)
	return s
}

// with serves the shelf with other options.
func (s *shelf) with(o api.Options) *server {
	o.Catalog = s.models
	return listen(s.t, api.New(nil, o))
}

func serveCatalog(t *testing.T, models *generate.Models) *server {
	return listen(t, api.New(nil, api.Options{Catalog: models, Version: "test"}))
}

// states are the models of /v1/models with their status, by name.
func (s *server) states() map[string]string {
	s.t.Helper()
	_, list := s.object("GET", "/v1/models", nil)
	states := map[string]string{}
	for _, m := range list["data"].([]any) {
		states[at(m, "id").(string)], _ = at(m, "status").(string)
	}
	return states
}

// within waits for a condition.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func ask(model string) obj { return obj{"model": model, "prompt": []int{1, 2}, "max_tokens": 2} }

// TestModelsAreLoadedByTheFirstRequest: models are known, the first request loads one, and /v1/models, /health, /plan
// and /metrics show all of them. Requests at the same time load a model once.
func TestModelsAreLoadedByTheFirstRequest(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{}, nil, nil, "a", "b")
	if got := s.states(); got["a"] != "known" || got["b"] != "known" || len(got) != 2 {
		t.Errorf("before a request: %v", got)
	}
	if status, body := s.text("GET", "/ready", nil); status != http.StatusOK {
		t.Errorf("without a loaded model /ready is %d: %s", status, body)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if status, body := s.text("POST", "/v1/completions", ask("b")); status != http.StatusOK {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
	wait.Wait()
	if got := s.happened(); got != "+b" {
		t.Errorf("events: %s", got)
	}
	if got := s.states(); got["a"] != "known" || got["b"] != "ready" {
		t.Errorf("after a request: %v", got)
	}
	_, health := s.object("GET", "/health", nil)
	if at(health, "models", 0, "status") != "known" || at(health, "models", 1, "status") != "ready" {
		t.Errorf("/health: %v", health)
	}
	_, plan := s.object("GET", "/plan", nil)
	if at(plan, "models", 0, "plan") != nil || at(plan, "models", 1, "plan") == nil {
		t.Errorf("/plan: %v", plan)
	}
	_, metrics := s.text("GET", "/metrics", nil)
	for _, line := range []string{`heft_model_state{engine="0",model_name="a",state="known"} 1`, `heft_model_state{engine="0",model_name="b",state="ready"} 1`,
		`vllm:num_requests_running{engine="0",model_name="b"} 0`, `vllm:request_generation_tokens_count{engine="0",model_name="b"} 8`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if status, _ := s.text("POST", "/v1/completions", obj{"prompt": []int{1}, "max_tokens": 1}); status != http.StatusOK || s.happened() != "+b, +a" {
		t.Errorf("a request that names no model: %d, %s", status, s.happened())
	}
}

// TestAnUnknownModelIsNotFoundInEveryDialect, and no model is loaded for it.
func TestAnUnknownModelIsNotFoundInEveryDialect(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{}, nil, nil, "a", "b")
	for path, want := range map[string][2]string{
		"/v1/completions": {"code", "model_not_found"}, "/v1/chat/completions": {"code", "model_not_found"}, "/v1/responses": {"code", "model_not_found"},
		"/v1/embeddings": {"code", "model_not_found"}, "/tokenize": {"code", "model_not_found"}, "/v1/messages": {"type", "not_found_error"},
	} {
		for _, name := range []string{"c", "../a", "/etc/passwd", "a/"} {
			status, body := s.object("POST", path, obj{"model": name})
			if status != http.StatusNotFound || at(body, "error", want[0]) != want[1] {
				t.Errorf("%s, model %q: %d %v", path, name, status, body)
			}
		}
	}
	if got := s.happened(); got != "" {
		t.Errorf("events: %s", got)
	}
}

// TestAModelIsNotUnloadedUnderARequest: a model that needs the room of another waits for the other's stream to end.
func TestAModelIsNotUnloadedUnderARequest(t *testing.T) {
	passes, goOn := make(chan struct{}, 64), make(chan struct{})
	fakes := map[string]*enginetest.Model{"a": {BeforePass: func(ctx context.Context, _ []engine.Row) error {
		passes <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return nil
	}}}
	asked := make(chan bool, 1)
	s := newShelf(t, generate.ModelsOptions{}, fakes, func(ctx context.Context, s *shelf, name string) error {
		if name != "b" {
			return nil
		}
		if made, err := s.models.MakeRoom(ctx, false); made || err != nil {
			t.Errorf("room in spite of a request: %v, %v", made, err)
		}
		asked <- true
		_, err := s.models.MakeRoom(ctx, true)
		return err
	}, "a", "b")
	ended := make(chan int, 2)
	go func() {
		status, _ := s.text("POST", "/v1/completions", ask("a"))
		s.note("answered a")
		ended <- status
	}()
	<-passes
	go func() {
		status, _ := s.text("POST", "/v1/completions", ask("b"))
		ended <- status
	}()
	<-asked
	if got := s.states(); got["a"] != "ready" || got["b"] != "loading" {
		t.Errorf("while a computes and b waits: %v", got)
	}
	close(goOn)
	for range 2 {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	if got := s.states(); got["a"] != "known" || got["b"] != "ready" {
		t.Errorf("at the end: %v", got)
	}
	if status, _ := s.text("POST", "/v1/completions", ask("a")); status != http.StatusOK { // it is loaded again next to b
		t.Errorf("status %d", status)
	}
	if got := s.happened(); !strings.HasPrefix(got, "+a, ") || !strings.HasSuffix(got, "+a") || strings.Count(got, "-a") != 1 || strings.Index(got, "-a") > strings.Index(got, "+b") {
		t.Errorf("events: %s", got)
	}
}

// TestALoadThatTakesTooLongIsUnavailable: the request gets 503 with Retry-After, and loading that no request waits for
// ends. A client that disconnects does not end it for others.
func TestALoadThatTakesTooLongIsUnavailable(t *testing.T) {
	var ended atomic.Int32
	s := newShelf(t, generate.ModelsOptions{LoadTimeout: 200 * time.Millisecond}, nil, func(ctx context.Context, _ *shelf, name string) error {
		if name == "b" {
			return nil
		}
		<-ctx.Done()
		ended.Add(1)
		return ctx.Err()
	}, "a", "b")
	for path, want := range map[string][2]string{"/v1/completions": {"code", "model_loading"}, "/v1/messages": {"type", "overloaded_error"}} {
		resp := s.do("POST", path, ask("a"))
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || at(parse(t, string(body)), "error", want[0]) != want[1] {
			t.Errorf("%s: %s, Retry-After %q: %s", path, resp.Status, resp.Header.Get("Retry-After"), body)
		}
	}
	within(t, "loading ends", func() bool { return ended.Load() >= 1 && s.states()["a"] == "known" })
	within(t, "the other model answers", func() bool { // which on a busy machine takes longer than the timeout
		status, _ := s.text("POST", "/v1/completions", ask("b"))
		return status == http.StatusOK
	})
}

// TestAModelThatCannotBeLoadedSaysWhy: its requests are 503, its status failed, and others run.
func TestAModelThatCannotBeLoadedSaysWhy(t *testing.T) {
	var opens atomic.Int32
	s := newShelf(t, generate.ModelsOptions{}, nil, func(_ context.Context, _ *shelf, name string) error {
		if name == "a" {
			opens.Add(1)
			return errors.New("model.safetensors: the header is cut off")
		}
		return nil
	}, "a", "b")
	for range 3 {
		status, body := s.object("POST", "/v1/completions", ask("a"))
		if message, _ := at(body, "error", "message").(string); status != http.StatusServiceUnavailable || !strings.Contains(message, "the header is cut off") {
			t.Errorf("%d %v", status, body)
		}
	}
	if n := opens.Load(); n != 1 {
		t.Errorf("%d requests within seconds opened a broken model %d times, want 1", 3, n)
	}
	_, card := s.object("GET", "/v1/models/a", nil)
	if card["status"] != "failed" || card["error"] != "model.safetensors: the header is cut off" {
		t.Errorf("/v1/models/a: %v", card)
	}
	if status, body := s.text("POST", "/v1/completions", ask("b")); status != http.StatusOK {
		t.Errorf("the other model: %d %s", status, body)
	}
}

// TestAnIdleModelIsUnloaded, and the next request loads it again.
func TestAnIdleModelIsUnloaded(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{IdleUnload: 5 * time.Millisecond}, nil, nil, "a")
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { s.models.UnloadIdle(ctx) })
	defer wait.Wait()
	defer stop()
	for range 2 {
		if status, body := s.text("POST", "/v1/completions", ask("a")); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		within(t, "unloaded", func() bool { return s.states()["a"] == "known" && strings.HasSuffix(s.happened(), "-a") })
		if status, body := s.text("GET", "/metrics", nil); status != http.StatusOK || !strings.Contains(body, "vllm:request_generation_tokens_count") {
			t.Errorf("metrics while no model is loaded: %d", status)
		}
	}
	if got := s.happened(); got != "+a, -a, +a, -a" {
		t.Errorf("events: %s", got)
	}
}

// TestModelsComeAndGoUnderLoad asks for three models of which one fits, from many clients at once, half of which unload
// what they have used.
func TestModelsComeAndGoUnderLoad(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{}, nil, func(ctx context.Context, s *shelf, name string) error {
		if _, err := s.models.MakeRoom(ctx, true); err != nil && !errors.Is(err, generate.ErrNoOther) {
			return err
		}
		return nil
	}, "a", "b", "c")
	var wait sync.WaitGroup
	for client := range 6 {
		wait.Go(func() {
			for turn := range 5 {
				name := string(rune('a' + (client+turn)%3))
				if status, body := s.text("POST", "/v1/completions", ask(name)); status != http.StatusOK {
					t.Errorf("%s: %d %s", name, status, body)
				}
				s.text("GET", "/metrics", nil)
				if client%2 == 0 {
					s.text("POST", "/api/generate", obj{"model": name, "keep_alive": 0})
				}
			}
		})
	}
	wait.Wait()
}

// TestNoOtherModelIsLoadedWhileOneBecomesReady: a model that began to load just before another was ready could not make
// room, because that other one took memory but was not yet known as loaded. Its requests got 503.
func TestNoOtherModelIsLoadedWhileOneBecomesReady(t *testing.T) {
	s := newShelf(t, generate.ModelsOptions{}, nil, func(ctx context.Context, s *shelf, name string) error {
		if name == "a" {
			return nil
		}
		_, err := s.models.MakeRoom(ctx, true)
		return err
	}, "a", "b")
	var wait sync.WaitGroup
	var once sync.Once
	s.models.OnLoad(func(*generate.Model) {
		once.Do(func() {
			wait.Go(func() {
				if status, body := s.text("POST", "/v1/completions", ask("b")); status != http.StatusOK {
					t.Errorf("b: %d %s", status, body)
				}
			})
			within(t, "loading", func() bool { return s.states()["b"] == "loading" })
			time.Sleep(20 * time.Millisecond) // b would have failed within it
		})
	})
	if status, body := s.text("POST", "/v1/completions", ask("a")); status != http.StatusOK {
		t.Errorf("a: %d %s", status, body)
	}
	wait.Wait()
}

// TestAModelWithoutATimeWasCreatedInYear1: /v1/models showed -62135596800 for the embedded demo model.
func TestAModelWithoutATimeWasCreatedInYear1(t *testing.T) {
	models := generate.NewCatalog(generate.ModelsOptions{})
	before := time.Now()
	if err := models.Add(generate.Source{Name: "demo", Open: func(context.Context) (*generate.Opened, error) { return nil, nil }}); err != nil {
		t.Fatal(err)
	}
	if got := models.Known()[0].Created; got.Before(before) {
		t.Errorf("created %v, want the time of Add", got)
	}
}
