// Package backlog holds new TCP connections until their request has arrived. A held connection has
// no goroutine and no buffers of its own: its bytes stay in the system until the server reads them.
// So a flood of connections that send nothing, or half a request, costs about 1 KiB each, and new
// clients with a request pass them. Only Linux can hold connections in this way; elsewhere the
// listener is used as it is.
package backlog

import (
	"container/list"
	"net"
	"net/netip"
	"time"
)

// Limits are the limits of held connections.
type Limits struct {
	Most int // maximum number of held connections
	// Grace is the minimum time that a connection has for its request, when others need its place.
	Grace time.Duration
	// Patience is the maximum time that a connection is held. A connection without a whole header is
	// then closed. One with a header is passed on.
	Patience time.Duration
}

// A held is a connection whose request has not arrived.
type held struct {
	conn   *net.TCPConn
	id     int32
	client netip.Prefix
	since  time.Time
	place  *list.Element // nil when it is not held any more
	headed bool          // all of the header has arrived
}

// waiting is the set of held connections. It is not safe for concurrent use.
type waiting struct {
	order list.List // of *held, the longest waiting first
	byID  map[int32]*held
	count map[netip.Prefix]int // connections of each client
}

func newWaiting() *waiting {
	return &waiting{byID: map[int32]*held{}, count: map[netip.Prefix]int{}}
}

func (w *waiting) add(h *held) {
	h.place = w.order.PushBack(h)
	w.byID[h.id] = h
	w.count[h.client]++
}

func (w *waiting) remove(h *held) {
	w.order.Remove(h.place)
	h.place = nil
	delete(w.byID, h.id)
	if w.count[h.client]--; w.count[h.client] == 0 {
		delete(w.count, h.client)
	}
}

func (w *waiting) len() int { return w.order.Len() }

// longest returns the connection that waits longest, or nil.
func (w *waiting) longest() *held {
	if e := w.order.Front(); e != nil {
		return e.Value.(*held)
	}
	return nil
}

// victim returns the connection that makes room for others: of the client with the most
// connections, the one that has waited longest. So a client with few connections keeps them while
// another one has many. It returns nil if there is none.
func (w *waiting) victim() *held {
	most := 0
	for _, n := range w.count {
		most = max(most, n)
	}
	for e := w.order.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*held); w.count[h.client] == most {
			return h
		}
	}
	return nil
}

// clientOf returns the client of an address: all of an IPv4 address, or the 64 bits of an IPv6
// address that a provider assigns.
func clientOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.WithZone("").Prefix(bits) // an invalid address has no bits
	return p
}
