package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// KeepAlive is the time of silence after which a stream sends a comment. A prompt may take minutes
// if weights stream from disk.
const KeepAlive = 15 * time.Second

// Events writes server-sent events and flushes each. The header is sent with the first event, so
// that an error before it still has its own status. An Events is for use by one goroutine.
type Events struct {
	w       http.ResponseWriter
	flush   func() error
	buf     bytes.Buffer
	started bool
	last    time.Time // of the last write, or of NewEvents

	news  func() string
	often time.Duration // between comments with news
	idle  func() any    // of a stream of lines, see NewLines; nil: a stream of events
	ping  any           // sent in place of a comment without news; nil: none
}

// NewEvents returns a stream of events to w. It writes nothing yet.
func NewEvents(w http.ResponseWriter) *Events {
	return &Events{w: w, flush: http.NewResponseController(w).Flush, last: time.Now()}
}

// Header returns the header of the answer.
func (e *Events) Header() http.Header { return e.w.Header() }

// Started reports whether anything was sent.
func (e *Events) Started() bool { return e.started }

func (e *Events) write() error {
	if !e.started {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		if e.idle != nil {
			h.Set("Content-Type", "application/x-ndjson")
		}
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
		e.started = true
		e.w.WriteHeader(http.StatusOK)
	}
	e.last = time.Now()
	if _, err := e.w.Write(e.buf.Bytes()); err != nil {
		return err
	}
	return e.flush()
}

// Send sends v as JSON in an event without a name. It fails if the client has disconnected.
func (e *Events) Send(v any) error { return e.SendNamed("", v) }

// SendNamed sends v as JSON in an event with a name. It fails if the client has disconnected.
func (e *Events) SendNamed(name string, v any) error {
	if e.idle != nil {
		return e.sendLine(v)
	}
	e.buf.Reset()
	if name != "" {
		e.buf.WriteString("event: ")
		e.buf.WriteString(name)
		e.buf.WriteByte('\n')
	}
	e.buf.WriteString("data: ")
	if err := Encode(&e.buf, v); err != nil {
		return err
	}
	e.buf.WriteByte('\n') // after the newline of Encode
	return e.write()
}

// Line sends one line of text, such as "data: [DONE]" or ": a comment", as an event.
func (e *Events) Line(s string) error {
	e.buf.Reset()
	e.buf.WriteString(s)
	e.buf.WriteString("\n\n")
	return e.write()
}

// Announce sends the text that news returns as a comment, once a second while the stream is silent.
// It sends nothing if news returns "". The text must not contain line breaks.
func (e *Events) Announce(news func() string) { e.news, e.often = news, time.Second }

// Ping makes the stream send v as an event with the name "ping" instead of an empty comment.
func (e *Events) Ping(v any) { e.ping = v }

// comment sends a comment that keeps the connection alive and contains the news. Clients ignore it.
func (e *Events) comment() error {
	if e.idle != nil {
		return e.sendLine(e.idle())
	}
	if e.news != nil {
		if text := e.news(); text != "" {
			return e.Line(": " + text)
		}
	}
	if e.ping != nil {
		return e.SendNamed("ping", e.ping)
	}
	return e.Line(": still at work")
}

// silence returns the maximum time of silence: every, or less while there is news.
func (e *Events) silence(every time.Duration) time.Duration {
	if e.news != nil && e.news() != "" {
		return min(every, e.often)
	}
	return every
}

// ErrGone means that the client has disconnected or already knows the error.
var ErrGone = errors.New("wire: the client has disconnected")

// Each calls send for each value of next until next returns io.EOF. It sends a comment when the
// stream has been silent for the duration every. It returns next's error, or ErrGone if a write
// failed.
func Each[T any](ctx context.Context, e *Events, every time.Duration, next func(context.Context) (T, error), send func(T) error) error {
	for {
		v, err := nextOrComment(ctx, e, every, next)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if send(v) != nil {
			return ErrGone
		}
		if time.Since(e.last) > every && e.comment() != nil { // send writes nothing for some values
			return ErrGone
		}
	}
}

// nextOrComment waits for the next value and sends comments meanwhile.
func nextOrComment[T any](ctx context.Context, e *Events, every time.Duration, next func(context.Context) (T, error)) (T, error) {
	for {
		limit := e.silence(every)
		wait, cancel := context.WithTimeout(ctx, limit)
		v, err := next(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return v, err
		}
		if limit < every && e.silence(every) == every {
			continue // the news has ended
		}
		if e.comment() != nil {
			return v, ErrGone
		}
	}
}
