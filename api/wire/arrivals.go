package wire

import (
	"container/list"
	"io"
	"net/http"
	"time"
)

const (
	// slowAfter is the minimum time that a client has for its body while other requests wait for
	// memory. After it, a body is slow if it has made no progress for as long, or came below slowRate.
	slowAfter = 500 * time.Millisecond
	// slowRate is in bytes per second.
	slowRate = 16 << 10
	// slowCheck is the time between two searches for slow bodies.
	slowCheck = slowAfter / 5
)

// An arrival is a body that has not arrived completely. Its memory is reserved, so other requests
// may wait for it. Memory.mu guards its fields.
type arrival struct {
	io.ReadCloser
	m           *Memory
	client      string
	begin, last time.Time // last is the time of the last progress
	read        int64     // bytes
	stop        func()    // lets Read fail; only while the body arrives, as the connection outlives it
	stopped     bool
	place       *list.Element // in Memory.arrivals; nil when the body has arrived
}

// arriving returns the body of r, whose memory is reserved. It fails if it comes slowly while other
// requests wait for memory.
func (m *Memory) arriving(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	now, connection := time.Now(), http.NewResponseController(w)
	a := &arrival{ReadCloser: r.Body, m: m, client: ClientOf(r.Context()).ID, begin: now, last: now,
		stop: func() { _ = connection.SetReadDeadline(now) }} // without deadlines, as in tests, the body is read on
	m.mu.Lock()
	defer m.mu.Unlock()
	a.place = m.arrivals.PushBack(a)
	return a
}

// Read implements io.Reader.
func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if n > 0 {
		a.read += int64(n)
		a.last = time.Now()
	}
	if err != nil {
		a.end()
	}
	if a.stopped && err != nil {
		err = &Error{Kind: TooSlow, Message: "The body of your request came too slowly while others waited for memory; send it again."}
	}
	return n, err
}

// Close implements io.Closer. It may be called more than once.
func (a *arrival) Close() error {
	a.m.mu.Lock()
	a.end()
	a.m.mu.Unlock()
	return a.ReadCloser.Close()
}

// end notes that no more of the body is read. The caller holds Memory.mu.
func (a *arrival) end() {
	if a.place != nil {
		a.m.arrivals.Remove(a.place)
		a.place = nil
	}
}

// slow reports whether the body may make room for others.
func (a *arrival) slow(now time.Time) bool {
	age := now.Sub(a.begin)
	return age >= slowAfter && (now.Sub(a.last) >= slowAfter || a.read < int64(slowRate*age.Seconds()))
}

// stopSlow stops one slow body for each request that waits for memory. It calls itself until none
// waits.
func (m *Memory) stopSlow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping = m.blocked > 0; !m.stopping {
		return
	}
	for _, a := range m.slowest(m.blocked) {
		a.stop()
	}
	time.AfterFunc(slowCheck, m.stopSlow)
}

// slowest marks up to n more slow bodies as stopped: of the client with the most bodies, the one
// that began first. It returns them, and those that were stopped earlier and have not ended: their
// deadline may have been moved since. The caller holds Memory.mu.
func (m *Memory) slowest(n int) (victims []*arrival) {
	now, count, slow := time.Now(), map[string]int{}, map[string][]*arrival{}
	for e := m.arrivals.Front(); e != nil; e = e.Next() {
		a := e.Value.(*arrival)
		if a.stopped {
			victims = append(victims, a)
			continue
		}
		if count[a.client]++; a.slow(now) {
			slow[a.client] = append(slow[a.client], a)
		}
	}
	for ; n > 0 && len(slow) > 0; n-- {
		most := ""
		for client := range slow {
			if most == "" || count[client] > count[most] {
				most = client
			}
		}
		a := slow[most][0]
		a.stopped = true
		victims = append(victims, a)
		count[most]--
		if slow[most] = slow[most][1:]; len(slow[most]) == 0 {
			delete(slow, most)
		}
	}
	return victims
}
