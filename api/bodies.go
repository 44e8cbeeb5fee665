package api

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/heftai/heft/api/openai"
)

const (
	// maxBody bounds a request's body: a prompt of a million ids fits.
	maxBody = 32 << 20
	// maxBodies bounds what is in memory of all bodies that are on their way or not yet
	// decoded, but for the first smallBody of each.
	maxBodies = 64 << 20
	smallBody = 64 << 10
	// roomWait is how long a large request waits for others to be decoded.
	roomWait = 10 * time.Second
)

// bodies counts the bytes of bodies that are in memory.
type bodies struct {
	most int64
	wait time.Duration

	mu    sync.Mutex
	held  int64
	freed chan struct{} // closed when there is more room; nil where nobody waits
}

// bound bounds each body and all of them together. One whose size is announced waits for room
// before it is read; what there is no room for is refused. A handler closes the body when it
// has taken from it what it wants.
func (b *bodies) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &boundBody{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody), all: b}
		defer body.Close()
		if n := r.ContentLength - smallBody; n > 0 && r.ContentLength <= maxBody {
			if !b.take(n, b.wait) {
				openai.WriteError(w, openai.Full())
				return
			}
			body.taken = n
		}
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// take counts n bytes, as soon as there is room for them.
func (b *bodies) take(n int64, wait time.Duration) bool {
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

func (b *bodies) give(n int64) {
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
	all         *bodies
	read, taken int64
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if more := b.read - smallBody - b.taken; more > 0 {
		if !b.all.take(more, 0) {
			return n, openai.Full()
		}
		b.taken += more
	}
	return n, err
}

// Close lets the body go. It may be called more than once.
func (b *boundBody) Close() error {
	b.all.give(b.taken)
	b.taken = 0
	return b.ReadCloser.Close()
}
