package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api/openai"
)

// TestLargeBodiesTogetherAreBounded: each body was bounded, and a hundred of them together took
// gigabytes.
func TestLargeBodiesTogetherAreBounded(t *testing.T) {
	all := &bodies{most: 200 << 10}
	var inside func(r *http.Request) // what the handler does
	h := all.bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			openai.WriteError(w, err)
			return
		}
		if inside != nil {
			inside(r)
		}
	}))
	send := func(size int, length int64) int {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size)))
		r.ContentLength = length
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusServiceUnavailable && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "overloaded")) {
			t.Errorf("refused with %v: %s", w.Header(), w.Body)
		}
		return w.Code
	}
	for name, c := range map[string]struct {
		size   int
		length int64
		want   int
	}{
		"alone": {180 << 10, 180 << 10, 200}, "too large": {300 << 10, 300 << 10, 503}, "too large, unannounced": {300 << 10, -1, 503},
	} {
		if got := send(c.size, c.length); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
	inside = func(r *http.Request) { // beside one that is not decoded yet
		inside = nil
		if got := send(180<<10, 180<<10); got != 503 {
			t.Errorf("a second one: %d", got)
		}
		if got := send(180<<10, -1); got != 503 {
			t.Errorf("a second one, unannounced: %d", got)
		}
		all.wait = time.Minute
		waited := make(chan int)
		go func() { waited <- send(180<<10, 180<<10) }()
		if got := send(60<<10, 60<<10); got != 200 {
			t.Errorf("a small one: %d", got)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		if got := <-waited; got != 200 {
			t.Errorf("when the first is decoded: %d", got)
		}
	}
	if got := send(180<<10, 180<<10); got != 200 {
		t.Errorf("the first: %d", got)
	}
	if held := all.held; held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}
