package wire

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"testing"
)

// list is a source of values, and an error after them.
type list struct {
	values []int
	end    error
}

func (l *list) next(context.Context) (int, error) {
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
	source := &list{[]int{1, 2}, io.EOF}
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
	if err := Each(t.Context(), e, KeepAlive, (&list{nil, torn}).next, func(int) error { return nil }); !errors.Is(err, torn) || e.Started() {
		t.Errorf("got %v, started %v", err, e.Started())
	}
	if err := Each(t.Context(), e, KeepAlive, (&list{[]int{1}, io.EOF}).next, func(int) error { return gone }); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}
