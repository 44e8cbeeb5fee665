package api

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

const (
	// connectionBytes is what a connection without a request takes: its goroutine and buffers.
	connectionBytes = 16 << 10
	// connectionShare of the requests' memory is for connections without a request.
	connectionShare = 16
	// fewConnections may always wait for a request.
	fewConnections = 64
)

// connections limits the connections that have no request, new ones and idle ones, and all connections by the file
// descriptors that the process may open. Beyond a limit the connection that has waited longest for a request is
// closed, as an idle timeout would. Connections with a request are limited by the memory of requests.
type connections struct {
	most int // without a request
	all  int // with and without

	mu      sync.Mutex
	waiting list.List // of net.Conn, the longest waiting first
	at      map[net.Conn]*list.Element
	open    int
	full    sync.Once // warns that there are all connections
}

// newConnections has the limits for so much memory of requests, and for a process that may open so many more files.
// Half of them are for connections; the other half is for weights and other files.
func newConnections(requestMemory int64, descriptors int) *connections {
	most := max(fewConnections, int(requestMemory/connectionShare/connectionBytes))
	return &connections{most: most, all: max(descriptors/2, 1), at: map[net.Conn]*list.Element{}}
}

// note is a server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	if longest := c.move(conn, state); longest != nil {
		_ = longest.Close() // net/http ends its goroutine
	}
}

// move keeps account of conn and returns the connection to be closed, nil for none.
func (c *connections) move(conn net.Conn, state http.ConnState) (longest net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
	case http.StateClosed, http.StateHijacked:
		c.open--
	}
	if e := c.at[conn]; e != nil {
		c.waiting.Remove(e)
		delete(c.at, conn)
	}
	if state != http.StateNew && state != http.StateIdle {
		return nil
	}
	c.at[conn] = c.waiting.PushBack(conn)
	if c.waiting.Len() <= c.most && c.open <= c.all || c.waiting.Len() == 1 {
		return nil
	}
	if c.open > c.all {
		c.full.Do(func() {
			slog.Warn("connections that wait for a request are closed for new ones, since the process may open few files: raise its limit (ulimit -n, or LimitNOFILE of systemd)", "connections", c.all)
		})
	}
	longest, _ = c.waiting.Remove(c.waiting.Front()).(net.Conn)
	delete(c.at, longest)
	return longest
}
