package wire

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
)

// lingerBytes is the maximum number of bytes of a rejected body that are read and discarded.
const lingerBytes = 64 << 20

type lingerKey struct{}

// WithLinger returns a context for requests, with a function that [RejectUnread] calls before it
// waits for the rest of a body. No memory is reserved for such a request.
func WithLinger(ctx context.Context, lingers func()) context.Context {
	return context.WithValue(ctx, lingerKey{}, lingers)
}

// RejectUnread responds to a request whose body is not read. It sends the whole response at once,
// and then discards the body. Many clients send the whole body before they read; if the connection
// closed earlier, they would see a broken pipe instead of the response. A stream of HTTP/2 ends at
// once: its client reads while it sends.
func RejectUnread(w http.ResponseWriter, r *http.Request, answer ErrorWriter, err error) {
	whole := wholeAnswer{header: w.Header(), status: http.StatusOK}
	answer(&whole, err)
	w.Header().Set("Content-Length", strconv.Itoa(whole.body.Len()))
	w.Header().Set("Connection", "close")
	w.WriteHeader(whole.status)
	if _, err := w.Write(whole.body.Bytes()); err != nil {
		return // the client has disconnected
	}
	if http.NewResponseController(w).Flush() == nil && r.ProtoMajor < 2 {
		if lingers, ok := r.Context().Value(lingerKey{}).(func()); ok {
			lingers()
		}
		_, _ = io.CopyN(io.Discard, r.Body, lingerBytes) // an error ends the connection, too
	}
}

// wholeAnswer collects a response, so that its length is known.
type wholeAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *wholeAnswer) Header() http.Header         { return a.header }
func (a *wholeAnswer) WriteHeader(status int)      { a.status = status }
func (a *wholeAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }
