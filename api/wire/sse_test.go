package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// values is a source of values, and an error after them.
type values struct {
	values []int
	end    error
}

func (l *values) next(context.Context) (int, error) {
	if len(l.values) == 0 {
		return 0, l.end
	}
	v := l.values[0]
	l.values = l.values[1:]
	return v, nil
}

func TestEventsOfADialectWithNames(t *testing.T) {
	w := httptest.NewRecorder()
	e := NewEvents(w)
	source := &values{[]int{1, 2}, io.EOF}
	err := Each(t.Context(), e, KeepAlive, source.next, func(v int) error {
		return e.SendNamed("delta", map[string]any{"n": v, "text": "<b>"})
	})
	if err != nil || e.Line("data: [DONE]") != nil {
		t.Fatal(err)
	}
	want := "event: delta\ndata: {\"n\":1,\"text\":\"<b>\"}\n\nevent: delta\ndata: {\"n\":2,\"text\":\"<b>\"}\n\ndata: [DONE]\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !w.Flushed || w.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("flushed %v, header %v", w.Flushed, w.Header())
	}
}

func TestEachReturnsTheErrorOfTheSourceOrOfTheClient(t *testing.T) {
	torn, gone := errors.New("torn"), errors.New("gone")
	e := NewEvents(httptest.NewRecorder())
	if err := Each(t.Context(), e, KeepAlive, (&values{nil, torn}).next, func(int) error { return nil }); !errors.Is(err, torn) || e.Started() {
		t.Errorf("got %v, started %v", err, e.Started())
	}
	if err := Each(t.Context(), e, KeepAlive, (&values{[]int{1}, io.EOF}).next, func(int) error { return gone }); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

// TestStreamsSendKeepAlivesWhileWeightsLoad: a client that waited for the weights saw nothing for seconds. While there is
// news a stream is never silent for long; then it is quiet again.
func TestStreamsSendKeepAlivesWhileWeightsLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		e := NewEvents(w)
		begin := time.Now()
		e.Announce(func() string {
			if n := int(time.Since(begin).Seconds()); n < 3 {
				return fmt.Sprintf("loading %d of 3 blocks", n)
			}
			return ""
		})
		sent := false
		next := func(ctx context.Context) (int, error) {
			if sent {
				return 0, io.EOF
			}
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Until(begin.Add(10 * time.Second))):
				sent = true
				return 7, nil
			}
		}
		if err := Each(t.Context(), e, KeepAlive, next, func(n int) error { return e.Send(n) }); err != nil {
			t.Fatal(err)
		}
		if got, want := w.Body.String(), ": loading 1 of 3 blocks\n\n: loading 2 of 3 blocks\n\ndata: 7\n\n"; got != want {
			t.Errorf("the client sees %q, want %q", got, want)
		}
	})
}

// TestPingsAreRepeated: a stream with a ping sends it again and again while it waits, as clients of Anthropic's expect.
func TestPingsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		e := NewEvents(w)
		e.Ping(map[string]string{"type": "ping"})
		end := time.Now().Add(3*KeepAlive + time.Second)
		next := func(ctx context.Context) (int, error) {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Until(end)):
				return 0, io.EOF
			}
		}
		if err := Each(t.Context(), e, KeepAlive, next, func(int) error { return nil }); err != nil {
			t.Fatal(err)
		}
		const ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
		if got := w.Body.String(); got != ping+ping+ping {
			t.Errorf("got %q, want three pings", got)
		}
	})
}
