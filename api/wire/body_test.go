package wire

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// plain writes an error as its status and message.
func plain(w http.ResponseWriter, err error) {
	var own *Error
	if !errors.As(err, &own) {
		own = &Error{Message: err.Error()}
	}
	http.Error(w, own.Message, own.Kind.Status())
}

func plainFor(*http.Request) ErrorWriter { return plain }

// TestLargeBodiesTogetherAreBounded: each body was bounded, and a hundred of them together took
// gigabytes.
func TestLargeBodiesTogetherAreBounded(t *testing.T) {
	all := &Bodies{most: 200 << 10}
	var inside func(r *http.Request) // what the handler does
	h := all.Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := ReadBody(r.Context(), r.Body); err != nil {
			plain(w, err)
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
	inside = func(r *http.Request) { // while another body is not decoded yet
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

// unread fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// TestAnOversizeAnnouncedBodyIsRejectedUnread: 32 MiB of a longer body were read before the 413.
func TestAnOversizeAnnouncedBodyIsRejectedUnread(t *testing.T) {
	h := NewBodies().Limit(plainFor)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("the handler ran") }))
	r := httptest.NewRequest("POST", "/", unread{t})
	r.ContentLength = maxBody + 1
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got status %d, want 413", w.Code)
	}
}

// failing is a body that ends with err.
type failing struct {
	io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

// TestAMalformedBodyIsTheClientsFault: malformed chunks were a 499.
func TestAMalformedBodyIsTheClientsFault(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Kind
	}{
		"malformed": {errors.New("invalid byte in chunk length"), Invalid}, "incomplete": {io.ErrUnexpectedEOF, Invalid},
		"full": {errFull(), Overloaded}, "large": {&http.MaxBytesError{}, TooLarge},
	} {
		_, err := ReadBody(t.Context(), failing{strings.NewReader("{"), c.err})
		var own *Error
		if !errors.As(err, &own) || own.Kind != c.want {
			t.Errorf("%s: got %v, want kind %d", name, err, c.want)
		}
	}
}
