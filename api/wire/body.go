package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxBody is the limit of one body in bytes. A prompt of a million token ids fits.
	maxBody = 32 << 20
	// maxBodies is the limit of all bodies that are being read or decoded, in bytes. The first
	// smallBody bytes of each are not counted.
	maxBodies = 64 << 20
	smallBody = 64 << 10
	// roomWait is how long a large body waits for memory.
	roomWait = 10 * time.Second
)

// Bodies limits the memory that bodies take together. It is safe for concurrent use.
type Bodies struct {
	most int64
	wait time.Duration

	mu    sync.Mutex
	held  int64
	freed chan struct{} // closed when memory is released; nil if no body waits
}

// NewBodies returns the limits of a server.
func NewBodies() *Bodies { return &Bodies{most: maxBodies, wait: roomWait} }

// Limit wraps next so that each body, and all bodies together, stay within their limits. A body
// whose announced size exceeds the limit is rejected unread. A large body waits until there is
// memory for it. The memory is released when the handler closes the body. Errors are written by
// the ErrorWriter that errorsOf returns.
func (b *Bodies) Limit(errorsOf func(*http.Request) ErrorWriter) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > maxBody {
				errorsOf(r)(w, errTooLarge())
				return
			}
			body := &boundBody{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody), all: b}
			defer body.Close()
			if n := r.ContentLength - smallBody; n > 0 {
				if !b.take(n, b.wait) {
					errorsOf(r)(w, errFull())
					return
				}
				body.taken = n
			}
			r.Body = body
			next.ServeHTTP(w, r)
		})
	}
}

// take counts n bytes as soon as there is room for them. It returns false if there is none in time.
func (b *Bodies) take(n int64, wait time.Duration) bool {
	var late <-chan time.Time
	for {
		b.mu.Lock()
		if b.held+n <= b.most {
			b.held += n
			b.mu.Unlock()
			return true
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		if late == nil {
			late = time.After(wait)
		}
		select {
		case <-freed:
		case <-late:
			return false
		}
	}
}

// release frees n bytes.
func (b *Bodies) release(n int64) {
	b.mu.Lock()
	b.held -= n
	if b.freed != nil && n > 0 {
		close(b.freed)
		b.freed = nil
	}
	b.mu.Unlock()
}

// boundBody is counted until it is closed. It is for one goroutine.
type boundBody struct {
	io.ReadCloser
	all         *Bodies
	read, taken int64
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if more := b.read - smallBody - b.taken; more > 0 {
		if !b.all.take(more, 0) {
			return n, errFull()
		}
		b.taken += more
	}
	return n, err
}

// Close releases the body's memory. It may be called more than once.
func (b *boundBody) Close() error {
	b.all.release(b.taken)
	b.taken = 0
	return b.ReadCloser.Close()
}

// ReadBody reads a body to its end. Errors are of type *Error: the body is too large, malformed
// or incomplete, or ctx has ended.
func ReadBody(ctx context.Context, body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(body)
	if err == nil {
		return b, nil
	}
	var own *Error
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return nil, own
	case errors.As(err, &large):
		return nil, errTooLarge()
	case ctx.Err() != nil:
		return nil, &Error{Kind: Interrupted, Message: "The client closed the request.", Err: err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &Error{Kind: Invalid, Message: "The body of your request ended early.", Err: err}
	}
	return nil, &Error{Kind: Invalid, Message: "We could not read the body of your request: " + err.Error() + ".", Err: err}
}

func errTooLarge() *Error {
	return &Error{Kind: TooLarge, Message: "The body of your request is larger than this server takes."}
}

func errFull() *Error {
	return &Error{Kind: Overloaded, RetryAfter: time.Second,
		Message: "The server has as many large requests as it can hold; retry after 1 s."}
}
