package wire

import (
	"container/list"
	"context"
)

// A newcomer is a request that waits for its first memory.
type newcomer struct {
	client string
	wants  int64 // bytes; 0 before its turn to take them
	reject func()
	left   bool // it does not wait any more
}

// claim reserves n bytes for a new request. It fails at once if too many requests wait.
func (m *Memory) claim(ctx context.Context, n int64) (*Claim, bool) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	who := &newcomer{client: ClientOf(ctx).ID, reject: cancel}
	place := m.enqueue(who)
	if place == nil {
		return nil, false
	}
	defer m.dequeue(place)
	if !m.admit(waiting, n) {
		return nil, false
	}
	m.mu.Lock()
	who.wants = n
	m.mu.Unlock()
	if !m.take(waiting, &m.held, n, m.wait, who) {
		return nil, false
	}
	return &Claim{m: m, ctx: ctx, held: n}, true
}

// enqueue returns the place of n among the requests that wait for memory. If too many wait, it
// rejects the last one of the client with the most. It returns nil if that is n.
func (m *Memory) enqueue(n *newcomer) *list.Element {
	m.mu.Lock()
	defer m.mu.Unlock()
	place := m.waiting.PushBack(n)
	m.ofClient[n.client]++
	if m.waiting.Len() <= max(fewWaits, int(m.limit/waitShare/waitBytes)) {
		return place
	}
	last := m.lastOfMost()
	last.Value.(*newcomer).reject()
	m.leave(last)
	if last == place {
		return nil
	}
	return place
}

// lastOfMost returns the last newcomer of the client with the most of them.
func (m *Memory) lastOfMost() *list.Element {
	most := 0
	for _, n := range m.ofClient {
		most = max(most, n)
	}
	e := m.waiting.Back()
	for m.ofClient[e.Value.(*newcomer).client] < most {
		e = e.Prev()
	}
	return e
}

// outranked reports whether memory is free for a newcomer whose client has fewer of them than the
// client of n. The caller holds m.mu.
func (m *Memory) outranked(n *newcomer) bool {
	if len(m.ofClient) == 1 {
		return false
	}
	for e := m.waiting.Front(); e != nil; e = e.Next() {
		other := e.Value.(*newcomer)
		if other.wants > 0 && m.held.used+other.wants <= m.held.most && m.ofClient[other.client] < m.ofClient[n.client] {
			return true
		}
	}
	return false
}

// dequeue frees the place of a newcomer, unless it was rejected.
func (m *Memory) dequeue(place *list.Element) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := place.Value.(*newcomer)
	if n.left {
		return
	}
	for _, others := range m.ofClient {
		if others > m.ofClient[n.client] {
			m.wake() // n may have outranked them
			break
		}
	}
	m.leave(place)
}

// leave removes a newcomer. The caller holds m.mu.
func (m *Memory) leave(place *list.Element) {
	n := m.waiting.Remove(place).(*newcomer)
	n.left = true
	if m.ofClient[n.client]--; m.ofClient[n.client] == 0 {
		delete(m.ofClient, n.client)
	}
}
