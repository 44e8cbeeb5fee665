package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/heftai/heft/api/wire"
)

// Timeouts limit how long a client may take. 0 means the default; a negative value means no limit.
type Timeouts struct {
	Header time.Duration // to send a request's header; 10 seconds, or Stall if that is shorter
	Idle   time.Duration // between two requests of a connection; 2 minutes
	// Stall is the maximum time without progress while a client sends its body or reads its answer;
	// the default is 1 minute. It does not limit how long the model computes.
	Stall time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	header := 10 * time.Second
	if t.Stall > 0 {
		header = min(header, t.Stall)
	}
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&t.Header, header}, {&t.Idle, 2 * time.Minute}, {&t.Stall, time.Minute}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		*d.value = max(*d.value, 0)
	}
	return t
}

// sendBuffer is the size of a connection's send buffer in bytes. Linux's default grows to several
// MiB; the server would then notice late that a client does not read.
const sendBuffer = 64 << 10

// limitBuffer sets the send buffer of a connection.
func limitBuffer(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = wrapped.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // the system's default works too
	}
	return ctx
}

const (
	// leastRate is the minimum rate of a body in bytes per second, after the first Timeouts.Stall.
	leastRate = 16 << 10
	// piece is the maximum number of bytes that are written under one deadline.
	piece = 64 << 10
)

// patient disconnects clients that stall. A body must make progress and arrive at leastRate or
// faster on average, and the client must read the answer. Each read and write moves the
// connection's deadlines, so the model's time is not limited.
func patient(stall time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if stall <= 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := &patientWriter{ResponseWriter: w, connection: http.NewResponseController(w), stall: stall}
			if r.Body != nil && r.Body != http.NoBody {
				b := &patientBody{body: r.Body, connection: out.connection, begin: time.Now(), stall: stall}
				b.extend() // for handlers that never read the body
				r.Body, out.body = b, b
			}
			defer out.extend() // net/http flushes its buffer after the handler has returned
			next.ServeHTTP(out, r)
		})
	}
}

// patientWriter extends the deadline for each piece that it writes. It also works with writers
// without deadlines, as in tests.
type patientWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
	stall      time.Duration
	body       *patientBody // nil if there is none
}

// extend sets the deadlines for the next piece, and for the rest of the body, which net/http reads
// before it answers.
func (w *patientWriter) extend() {
	next := time.Now().Add(w.stall)
	if w.body != nil && !w.body.ended {
		next = next.Add(w.stall)
	}
	_ = w.connection.SetWriteDeadline(next)
}

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(b []byte) (int, error) {
	done := 0
	for {
		w.extend()
		n, err := w.ResponseWriter.Write(b[done:min(done+piece, len(b))])
		if done += n; err != nil || done == len(b) {
			return done, err
		}
	}
}

// FlushError is used by http.ResponseController.
func (w *patientWriter) FlushError() error {
	w.extend()
	return w.connection.Flush()
}

// Flush implements http.Flusher. An error shows at the next write.
func (w *patientWriter) Flush() { _ = w.FlushError() } // the next write returns the error

// Unwrap is used by http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// patientBody moves the deadline with each read.
type patientBody struct {
	body       io.ReadCloser
	connection *http.ResponseController
	begin      time.Time
	stall      time.Duration
	read       int64
	ended      bool
}

// extend sets the deadline for the next read: stall from now, but no later than leastRate allows
// for the body so far.
func (b *patientBody) extend() {
	whole := b.begin.Add(b.stall + time.Duration(b.read)*time.Second/leastRate)
	if next := time.Now().Add(b.stall); next.Before(whole) {
		whole = next
	}
	_ = b.connection.SetReadDeadline(whole)
}

// Read implements io.Reader. At the end of the body it removes the deadline, because net/http then
// reads the connection to notice that the client disconnects.
func (b *patientBody) Read(p []byte) (int, error) {
	b.extend()
	n, err := b.body.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, &wire.Error{Kind: wire.TooSlow, Message: "The body of your request came too slowly."}
	case errors.Is(err, io.EOF):
		b.ended = true
		_ = b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Close implements io.Closer.
func (b *patientBody) Close() error { return b.body.Close() }
