package api

import (
	"container/list"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/api/wire"
)

const (
	// connectionBytes is the memory of a connection without a request: its goroutine and buffers.
	connectionBytes = 16 << 10
	// connectionShare: 1/connectionShare of the memory for requests is for connections without a
	// request.
	connectionShare = 16
	// fewConnections is the minimum number of connections that may wait for a request.
	fewConnections = 64
	// silentConnections is the maximum number of connections whose request has not arrived. They wait
	// in the backlog and are not counted here. Each takes silentBytes of memory, which the memory for
	// requests pays.
	silentConnections, silentBytes = 512, 3 << 10
	// silentGrace is the minimum time that a client has to send its request after it has connected.
	// It need not allow for a slow server, which looks for a request before it closes a connection.
	silentGrace = 100 * time.Millisecond
	// warnConnections: below this limit of connections the server warns at its start.
	warnConnections = 256
	// grace is the time that a connection may wait for a request before it may be closed to make
	// room for another one. It allows a request that was already sent to be read.
	grace = 250 * time.Millisecond
)

// connections limits two numbers: connections without a request, by the memory for requests; and all
// connections, by the file descriptors that the process may open. A connection without a request is
// new or idle, or its request is answered and the client still sends the body. At a limit no
// connection is accepted until another one ends, or is closed because it has been without a request
// longer than grace. Until then clients wait in the system's queue, and answers close their
// connections. Connections with a request are limited by the memory for requests.
type connections struct {
	most int // maximum without a request
	all  int // maximum with and without a request

	mu      sync.Mutex
	changed sync.Cond
	waiting list.List // of waiter, the longest waiting first
	at      map[net.Conn]*list.Element
	closed  map[net.Conn]bool // by closeLongest, until net/http reports it
	open    int
	full    sync.Once   // warns that the limit is reached
	crowded atomic.Bool // a connection waits to be accepted
}

// A waiter is a connection without a request.
type waiter struct {
	conn  net.Conn
	since time.Time
}

// newConnections returns the limits for requestMemory bytes of memory for requests, and for a
// process that may open further descriptors. Half of these are for connections, the other half for
// weights and other files.
func newConnections(requestMemory int64, descriptors int) *connections {
	most := max(fewConnections, int(requestMemory/connectionShare/connectionBytes))
	c := &connections{most: most, all: max(descriptors/2, 1), at: map[net.Conn]*list.Element{}, closed: map[net.Conn]bool{}}
	c.changed.L = &c.mu
	if c.all < warnConnections {
		slog.Warn("the process may open few files: more clients than this must wait; raise the limit (ulimit -n, or LimitNOFILE in systemd)", "connections", c.all)
	}
	return c
}

type connectionKey struct{}

// withConnection returns the base context of a connection's requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(limitBuffer(ctx, conn), connectionKey{}, conn)
}

// handler closes connections after the answer while other connections wait to be accepted. It notes
// answered requests whose body has not arrived yet.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.crowded.Load() {
			w.Header().Set("Connection", "close")
		}
		conn, ok := r.Context().Value(connectionKey{}).(net.Conn)
		if !ok || r.ProtoMajor >= 2 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(wire.WithLinger(r.Context(), func() { c.lingers(conn) }))
		body := &notedBody{ReadCloser: r.Body}
		r.Body = body
		next.ServeHTTP(w, r)
		if !body.ended {
			c.lingers(conn) // net/http reads the rest
		}
	})
}

// notedBody notes whether a body was read to its end.
type notedBody struct {
	io.ReadCloser
	ended bool
}

// Read implements io.Reader.
func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// lingers notes that the request of conn is answered, but its body has not arrived. The memory of
// the request is released, so the connection counts as one without a request.
func (c *connections) lingers(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[conn] == nil && !c.closed[conn] {
		c.wait(conn)
	}
}

// note is the server's ConnState callback. For a new connection it blocks until there is room;
// meanwhile net/http accepts no other one.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[conn]; e != nil {
		c.waiting.Remove(e)
		delete(c.at, conn)
	}
	switch state {
	case http.StateNew:
		c.open++
		c.makeRoom()
		c.wait(conn)
	case http.StateIdle:
		c.wait(conn)
	case http.StateClosed, http.StateHijacked:
		c.open--
		delete(c.closed, conn)
	}
	c.changed.Broadcast()
}

func (c *connections) wait(conn net.Conn) {
	c.at[conn] = c.waiting.PushBack(waiter{conn, time.Now()})
}

// makeRoom blocks until one more connection may wait for its request.
func (c *connections) makeRoom() {
	defer c.crowded.Store(false)
	for c.waiting.Len() >= c.most || c.open-len(c.closed) > c.all {
		c.crowded.Store(true)
		if c.open > c.all {
			c.full.Do(func() {
				slog.Warn("clients wait for a connection, since the process may open few files: raise its limit (ulimit -n, or LimitNOFILE of systemd)", "connections", c.all)
			})
		}
		if wait := c.closeLongest(); wait > 0 {
			timer := time.AfterFunc(wait, func() { c.mu.Lock(); defer c.mu.Unlock(); c.changed.Broadcast() })
			c.changed.Wait()
			timer.Stop()
		}
	}
}

// closeLongest closes the connection that has waited longest for a request, and returns 0. If none
// has waited for grace, it returns the time until one has.
func (c *connections) closeLongest() time.Duration {
	e := c.waiting.Front()
	if e == nil {
		return grace
	}
	longest, _ := e.Value.(waiter)
	if left := grace - time.Since(longest.since); left > 0 {
		return left
	}
	c.waiting.Remove(e)
	delete(c.at, longest.conn)
	c.closed[longest.conn] = true
	_ = longest.conn.Close() // ends net/http's goroutine
	return 0
}
