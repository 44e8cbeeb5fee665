package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

func TestMain(m *testing.M) {
	// net/http lingers half a second on a connection whose request it did not read.
	goleak.VerifyTestMain(withChromium{m}, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// withChromium ends the browser after all tests.
type withChromium struct{ *testing.M }

func (m withChromium) Run() int {
	code := m.M.Run()
	if err := endChromium(); err != nil {
		fmt.Fprintln(os.Stderr, "chromium does not end:", err)
		return max(code, 1)
	}
	return code
}

// server is a handler behind a real socket.
type server struct {
	*httptest.Server
	t   testing.TB
	key string
}

// serve serves m with the fixed settings of tests.
func serve(t testing.TB, m *generate.Model, keys ...string) *server {
	t.Helper()
	return serveWith(t, api.Options{Models: []*generate.Model{m}, APIKeys: keys})
}

func serveWith(t testing.TB, o api.Options) *server {
	t.Helper()
	if o.Status == nil {
		o.Status = func() dispatch.Status {
			return dispatch.Status{Loading: dispatch.Loading{Done: true, BlocksDone: 3, BlocksTotal: 3},
				TierBytes:     map[devicemap.Device]int64{devicemap.CPU: 1000, devicemap.Disk: 24},
				TierReadBytes: 48, Stall: 1500 * time.Millisecond, Held: map[string]int64{"kv": 512}}
		}
	}
	if o.Plan == nil {
		o.Plan = func() any { return map[string]any{"device_map": [][2]string{{"", "cpu"}}} }
	}
	o.Version = "test"
	m := o.Models[0]
	o.Models = o.Models[1:]
	return listen(t, api.New(m, o))
}

// listen serves h behind a real socket.
func listen(t testing.TB, h http.Handler) *server {
	s := &server{httptest.NewServer(h), t, ""}
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// serveDemo serves the embedded model, from weights to text.
func serveDemo(t testing.TB, keys ...string) *server {
	t.Helper()
	m, bound, plan := generatetest.Demo(t, engine.Options{})
	report := dispatch.NewReport(plan)
	return serveWith(t, api.Options{Models: []*generate.Model{m}, APIKeys: keys,
		Status: bound.Status, Plan: func() any { return report }})
}

// do sends a request. A body that is neither a string nor nil is sent as JSON.
func (s *server) do(method, path string, body any) *http.Response {
	s.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// readAll returns the whole body of an answer.
func readAll(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// text is the whole body of an answer.
func (s *server) text(method, path string, body any) (int, string) {
	s.t.Helper()
	resp := s.do(method, path, body)
	return resp.StatusCode, readAll(s.t, resp)
}

// object is a body of JSON, numbers as json.Number.
func (s *server) object(method, path string, body any) (int, map[string]any) {
	s.t.Helper()
	status, text := s.text(method, path, body)
	return status, parse(s.t, text)
}

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("no JSON object: %v in %.300s", err, text)
	}
	return v
}

// at follows keys and indices into a JSON value.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

type obj = map[string]any

// stream posts a body with "stream" and returns the data of its events, [DONE] included.
func (s *server) stream(path string, body obj) []string {
	s.t.Helper()
	body["stream"] = true
	resp := s.do("POST", path, body)
	b := readAll(s.t, resp)
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		s.t.Fatalf("content type %q, status %d: %s", got, resp.StatusCode, b)
	}
	return framed(s.t, b)
}

// framed checks the form of server-sent events and returns their data.
func framed(t testing.TB, body string) []string {
	t.Helper()
	rest, ok := strings.CutSuffix(body, "\n\n")
	if !ok {
		t.Fatalf("the stream does not end with an empty line: %q", body)
	}
	var data []string
	for event := range strings.SplitSeq(rest, "\n\n") {
		d, ok := strings.CutPrefix(event, "data: ")
		if !ok || strings.Contains(d, "\n") {
			t.Fatalf("event %q", event)
		}
		data = append(data, d)
	}
	return data
}

func mustJSON(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
