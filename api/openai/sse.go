package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/heftai/heft/api/generate"
)

// keepAlive is how long a stream is silent before a comment shows that it lives: a prompt
// may take minutes where weights come from disk.
const keepAlive = 15 * time.Second

// events writes server-sent events, each of which leaves at once. The header leaves with
// the first, so that what fails before it still has a status of its own.
type events struct {
	w       http.ResponseWriter
	flush   func() error
	buf     bytes.Buffer
	started bool
	last    time.Time // when something was sent, or the stream was made
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, flush: http.NewResponseController(w).Flush, last: time.Now()}
}

func (e *events) write() error {
	if !e.started {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
		e.started = true
		e.w.WriteHeader(http.StatusOK)
	}
	e.last = time.Now()
	if _, err := e.w.Write(e.buf.Bytes()); err != nil {
		return err
	}
	return e.flush()
}

// send sends one value.
func (e *events) send(v any) error {
	e.buf.Reset()
	e.buf.WriteString("data: ")
	if err := encode(&e.buf, v); err != nil {
		return err
	}
	e.buf.WriteByte('\n') // after the one that encode ends with
	return e.write()
}

func (e *events) line(s string) error {
	e.buf.Reset()
	e.buf.WriteString(s)
	e.buf.WriteString("\n\n")
	return e.write()
}

// done ends a stream that is complete.
func (e *events) done() error { return e.line("data: [DONE]") }

// next waits for the next part, with signs of life.
func (e *events) next(ctx context.Context, runs *generate.Runs, every time.Duration) (generate.Part, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, every)
		p, err := runs.Next(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return p, err
		}
		if e.alive() != nil {
			return p, errSent
		}
	}
}

// alive sends a comment.
func (e *events) alive() error { return e.line(": still at work") }

// each hands parts to f, which sends them, until all are there. What goes wrong before the
// first event is returned; afterwards it is an event of its own, and the stream ends
// without its end mark.
func (e *events) each(ctx context.Context, runs *generate.Runs, every time.Duration, f func(generate.Part) error) error {
	for {
		p, err := e.next(ctx, runs, every)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return e.fail(err)
		}
		if f(p) != nil {
			return errSent // the client has gone away
		}
		if time.Since(e.last) > every && e.alive() != nil { // nothing of what came is shown
			return errSent
		}
	}
}

// errSent says that the client already has what there is to know.
var errSent = errors.New("openai: answered")

func (e *events) fail(err error) error {
	if !e.started || errors.Is(err, errSent) {
		return err
	}
	wire := AsError(err)
	if wire.ours() {
		slog.Error("a stream failed", "reason", err)
	}
	_ = e.send(wire) // a client that has gone away misses nothing
	return errSent
}

// encode writes v as JSON and a newline, without escapes for HTML.
func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
