package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// gate lets passes through one by one.
type gate chan struct{}

func (g gate) pass(ctx context.Context, _ []engine.Row) error {
	select {
	case <-g:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func readEvent(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// TestChunksLeaveAtOnce: the client has a token before the model computes the next.
func TestChunksLeaveAtOnce(t *testing.T) {
	for _, c := range []struct {
		path string
		body obj
	}{
		{completions, obj{"prompt": "a", "max_tokens": 3, "stream": true, "ignore_eos": true, "return_token_ids": true}},
		{chat, obj{"messages": hello, "max_tokens": 3, "stream": true, "ignore_eos": true, "return_token_ids": true}},
	} {
		t.Run(c.path, func(t *testing.T) {
			g := make(gate)
			s := serve(t, generatetest.Spoken(t, &enginetest.Model{BeforePass: g.pass}, engine.Options{}))
			go func() { g <- struct{}{} }() // the prompt's pass, and no other
			resp := s.do("POST", c.path, c.body)
			r := bufio.NewReader(resp.Body)
			for ids := 0; ids == 0; {
				chunk := parse(t, strings.TrimPrefix(readEvent(t, r), "data: "))
				list, _ := at(chunk, "choices", 0, "token_ids").([]any)
				ids = len(list)
			}
			close(g)
			rest, err := io.ReadAll(r)
			if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
				t.Errorf("the rest is %q, %v", rest, err)
			}
		})
	}
}

func TestAClientThatGoesAwayFreesItsPlace(t *testing.T) {
	for _, body := range []obj{
		{"prompt": []int{1, 2, 3}, "max_tokens": 900, "stream": true, "return_token_ids": true},
		{"prompt": []int{1, 2, 3}, "max_tokens": 900},
		{"prompt": [][]int{{1, 2, 3}, {4}}, "max_tokens": 900, "n": 2},
	} {
		m := generatetest.Fake(t, &enginetest.Model{Delay: 2 * time.Millisecond}, engine.Options{})
		s := serve(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			req, err := http.NewRequestWithContext(ctx, "POST", s.URL+completions, strings.NewReader(mustJSON(t, body)))
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := s.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		eventually(t, "the request runs", func() bool { return generatetest.Engine(m).Stats().Running > 0 })
		cancel()
		eventually(t, "its place is free", func() bool {
			st := generatetest.Engine(m).Stats()
			return st.Running+st.Waiting+st.KV.Used == 0
		})
		<-done
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

var errTorn = errors.New("the shard model-2.safetensors ends early")

// failing breaks after some passes.
func failing(after int) *enginetest.Model {
	n := 0
	return &enginetest.Model{BeforePass: func(context.Context, []engine.Row) error {
		if n++; n > after {
			return errTorn
		}
		return nil
	}}
}

func TestErrorsBeforeAndWithinAStream(t *testing.T) {
	for path, prompt := range map[string]obj{completions: {"prompt": "a"}, chat: {"messages": hello}} {
		body := func() obj {
			b := obj{"max_tokens": 20, "ignore_eos": true, "return_token_ids": true}
			maps.Copy(b, prompt)
			return b
		}
		for _, stream := range []bool{false, true} {
			s := serve(t, generatetest.Spoken(t, failing(0), engine.Options{}))
			b := body()
			b["stream"] = stream
			status, got := s.object("POST", path, b)
			checkError(t, status, got, 500, nil, nil, errTorn.Error())
		}
		s := serve(t, generatetest.Spoken(t, failing(3), engine.Options{}))
		data := s.stream(path, body())
		last := parse(t, data[len(data)-1])
		checkError(t, 500, last, 500, nil, nil, errTorn.Error())
		if len(data) < 3 {
			t.Errorf("%d events before the error", len(data)-1)
		}
	}
}

// TestChangedWeightsAreUnavailable: it is the server's files that are wrong, which a balancer
// is to know.
func TestChangedWeightsAreUnavailable(t *testing.T) {
	changed := &engine.WeightError{Err: errTorn}
	m := &enginetest.Model{BeforePass: func(context.Context, []engine.Row) error { return changed }}
	s := serve(t, generatetest.Spoken(t, m, engine.Options{}))
	for path, body := range map[string]obj{completions: {"prompt": "a"}, chat: {"messages": hello}, "/v1/embeddings": {"input": "a"}} {
		status, got := s.object("POST", path, body)
		checkError(t, status, got, 503, nil, "model_unavailable", errTorn.Error())
	}
}

func TestOverloadAndDraining(t *testing.T) {
	g := make(gate)
	m := generatetest.Fake(t, &enginetest.Model{BeforePass: g.pass}, engine.Options{MaxBatch: 1, MaxQueue: -1})
	s := serve(t, m)
	running, err := m.Start(t.Context(), generate.Request{Prompt: []int32{1}, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	resp := s.do("POST", completions, obj{"prompt": []int{1}})
	checkError(t, resp.StatusCode, decodeBody(t, resp), 503, nil, "overloaded", "queue")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	drained := make(chan error, 1)
	go func() { drained <- generatetest.Engine(m).Shutdown(t.Context()) }()
	eventually(t, "the server drains", generatetest.Engine(m).Draining)
	resp = s.do("POST", completions, obj{"prompt": []int{1}})
	checkError(t, resp.StatusCode, decodeBody(t, resp), 503, nil, "shutting_down", "shutting down")
	if status, ready := s.object("GET", "/ready", nil); status != 503 || ready["status"] != "draining" {
		t.Errorf("/ready is %d, %v", status, ready)
	}
	close(g)
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// TestRequestsLargerThanTheQueueWereA503: what could never be accepted asked to be tried again, and
// embeddings of a few texts needed a place each.
func TestRequestsLargerThanTheQueueWereA503(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{MaxBatch: 2, MaxQueue: 1})
	s := serve(t, m)
	prompts := [][]int{{1}, {2}, {3}, {4}}
	for _, c := range []struct {
		prompts, n, status int
	}{{3, 1, 200}, {4, 1, 400}, {1, 9, 200}, {2, 3, 400}} {
		status, got := s.object("POST", completions, obj{"prompt": prompts[:c.prompts], "n": c.n, "max_tokens": 1})
		if status != c.status {
			t.Errorf("%d prompts of %d: %v", c.prompts, c.n, got)
		}
		if status == 400 {
			checkError(t, status, got, 400, "prompt", nil, "3 answers at a time")
		}
	}
	if status, got := s.object("POST", "/v1/embeddings", obj{"input": prompts}); status != 200 {
		t.Errorf("embeddings: %v", got)
	}
}

func decodeBody(t *testing.T, resp *http.Response) obj {
	t.Helper()
	return parse(t, readAll(t, resp))
}
