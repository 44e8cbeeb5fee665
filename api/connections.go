package api

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connectionBytes is what a connection without a request takes: its goroutine and buffers.
	connectionBytes = 16 << 10
	// connectionShare of the requests' memory is for connections without a request.
	connectionShare = 16
	// fewConnections may always wait for a request.
	fewConnections = 64
	// warnConnections is the number of connections below which the start warns.
	warnConnections = 256
	// grace is how long a connection may wait for a request before it makes room for another one: time in which a
	// request that was sent is read.
	grace = 250 * time.Millisecond
)

// connections limits the connections that have no request, new ones and idle ones, and all connections by the file
// descriptors that the process may open. At a limit no connection is accepted until another one ends, or has waited
// for a request longer than grace and is closed, as an idle timeout would. Until then clients wait in the system's
// queue, and answers close their connections. Connections with a request are limited by the memory of requests.
type connections struct {
	most int // without a request
	all  int // with and without

	mu      sync.Mutex
	changed sync.Cond
	waiting list.List // of waiter, the longest waiting first
	at      map[net.Conn]*list.Element
	closed  map[net.Conn]bool // by this, until net/http reports it
	open    int
	full    sync.Once   // warns that there are all connections
	crowded atomic.Bool // a connection waits to be accepted
}

// A waiter is a connection that waits for a request.
type waiter struct {
	conn  net.Conn
	since time.Time
}

// newConnections has the limits for so much memory of requests, and for a process that may open so many more files.
// Half of them are for connections; the other half is for weights and other files.
func newConnections(requestMemory int64, descriptors int) *connections {
	most := max(fewConnections, int(requestMemory/connectionShare/connectionBytes))
	c := &connections{most: most, all: max(descriptors/2, 1), at: map[net.Conn]*list.Element{}, closed: map[net.Conn]bool{}}
	c.changed.L = &c.mu
	if c.all < warnConnections {
		slog.Warn("the process may open few files: more clients than this must wait; raise the limit (ulimit -n, or LimitNOFILE in systemd)", "connections", c.all)
	}
	return c
}

// handler tells clients to close their connections after the answer while others wait to be accepted.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.crowded.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// note is a server's ConnState. For a new connection it returns when there is room, and net/http accepts no other
// one meanwhile.
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

// makeRoom returns when one more connection may wait for its request.
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

// closeLongest closes the connection that has waited longest for a request, and returns 0. If none has waited for
// grace, it returns after which time one may have.
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
	_ = longest.conn.Close() // net/http ends its goroutine
	return 0
}
